// A in tiles, for scattered entries: neighbouring rows (a panel) by neighbouring columns (a slice). The sums of a panel stay in the second-level cache of a
// thread, which takes its tiles one after the other and the entries of each by their columns: x is read from its beginning to its end, by all threads at
// about the same place, and nothing is gathered from beyond the second-level cache. A^T is stored so as well, made from A without a transpose.
//
// Entries are added one by one into the sums of their rows. Such terms cannot be added by halves: no more than kChain of them go into one sum, which is then
// added to a compensated total. The order depends on the matrix alone, so the bits do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cpu/row_storage.hpp"

namespace lsmr::cpu {

// The numbers by which tiles are chosen.
struct TileShape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    std::int64_t value_bytes = 0;
    double lines_per_entry = 0;  // as choose_panels() has it
    bool eights = false;         // rows could go by eights
};
// Whether tiles are expected to take less time than two products by rows.
bool tiles_pay(const TileShape& shape);
// Why there can be no tiles; empty: there can.
std::string why_not_tiles(std::int64_t rows, std::int64_t cols);

enum class Orientation { forward, adjoint };

template <class T>
class TileStorage {
  public:
    // 2^exponent A or its transpose, rounded to T.
    TileStorage(const CsrMatrix& a, Orientation orientation, int exponent, InstructionSet set, Narrowing narrowing);

    struct Scratch {
        HostBuffer<T> sums;                 // of a panel, for each thread
        HostBuffer<Compensated<T>> totals;  // of the sums that are cut
    };
    // y <- a A x + b y, A as it is stored
    void apply(double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const;

    // Of its arrays.
    std::int64_t bytes() const;
    // Of a scratch that serves some of them.
    static std::int64_t scratch_bytes(std::int64_t totals);
    std::int64_t totals() const { return totals_; }
    // Such as "64 x 31 tiles, values exact in fp32".
    std::string words() const;

  private:
    // The sum of a hot row goes into its total before an entry is added.
    struct Cut {
        std::int64_t entry;
        std::int32_t place;  // in hot
    };
    struct Panel {
        std::int64_t first_total = 0;
        std::vector<std::int32_t> hot;  // rows with a total, from the panel's first
        std::vector<Cut> cuts;
    };
    std::int64_t panels() const { return static_cast<std::int64_t>(panels_.size()); }

    template <class Put>
    void place_rows(const CsrMatrix& a, const Put& put);
    template <class Put>
    void place_columns(const CsrMatrix& a, const Put& put);
    void find_cuts();

    InstructionSet set_ = InstructionSet::portable;
    std::int64_t slices_ = 0;
    std::vector<std::int64_t> firsts_;  // rows of the panels, and the end
    std::vector<Panel> panels_;
    std::int64_t totals_ = 0;
    std::vector<std::int64_t> tiles_;   // where the entries of each begin, those of a panel one after the other, and the end
    HostBuffer<std::uint32_t> places_;  // row in the panel above, column in the slice below
    HostBuffer<T> values_;
    HostBuffer<float> short_values_;  // in their place where all are exact
};

}  // namespace lsmr::cpu
