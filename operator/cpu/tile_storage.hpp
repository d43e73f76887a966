// A in tiles, neighbouring rows by neighbouring columns, small enough that what a tile reads of one vector and adds to the other stays in the
// second-level cache. Entries have a 16-bit row and column each, which serve A x and A^T y alike: A is stored once, and no transpose is made.
//
// A thread takes a panel of tiles beside each other (A x: those of the same rows), and adds their entries one by one into the sums of the panel, in the
// order of the tiles. Such terms cannot be added by halves: no more than kChain of them go into one sum, which is then added to a compensated total.
// The order depends on the matrix alone, so the bits do.
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
};
// Whether tiles are expected to take less time than two products by rows.
bool tiles_pay(const TileShape& shape);
// Why there can be no tiles; empty: there can.
std::string why_not_tiles(std::int64_t rows, std::int64_t cols);

template <class T>
class TileStorage {
  public:
    // 2^exponent a, rounded to T.
    TileStorage(const CsrMatrix& a, int exponent, InstructionSet set, Narrowing narrowing);

    struct Scratch {
        HostBuffer<T> sums;                 // of a panel, for each thread
        HostBuffer<Compensated<T>> totals;  // of the sums that are cut
    };
    // y <- a A x + b y
    void apply(double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const { run(rows_, cols_, a, x, b, y, scratch, norm); }
    // y <- a A^T x + b y
    void apply_adjoint(double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const { run(cols_, rows_, a, x, b, y, scratch, norm); }

    std::int64_t bytes() const;
    // Such as "64 x 64 tiles, values exact in fp32".
    std::string words() const;

  private:
    // The sum of a hot row or column goes into its total before an entry is added.
    struct Cut {
        std::int64_t entry;
        std::int32_t place;  // in hot
    };
    struct Panel {
        std::int64_t first_total = 0;
        std::vector<std::uint16_t> hot;  // rows or columns with a total, from the panel's first
        std::vector<Cut> cuts;
    };
    // Rows, or columns.
    struct Side {
        std::vector<std::int64_t> firsts;  // of the panels, and the end
        std::vector<Panel> panels;
        std::int64_t totals = 0;
        bool by_rows = false;  // its sums are those of rows
        std::int64_t count() const { return static_cast<std::int64_t>(panels.size()); }
    };

    void make_tiles(const CsrMatrix& a, int exponent, bool exact);
    void find_cuts(Side& side, const Side& other) const;
    // f(first entry, end, panel of the other side) of the tiles of a panel, in their order.
    template <class F>
    void for_each_tile(const Side& side, const Side& other, std::int64_t panel, const F& f) const;
    void run(const Side& side, const Side& other, double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const;

    InstructionSet set_ = InstructionSet::portable;
    std::int64_t nnz_ = 0;
    Side rows_;
    Side cols_;
    std::vector<std::int64_t> tiles_;  // where the entries of each begin, those of the same rows one after the other, and the end
    HostBuffer<std::uint32_t> places_;  // row and column in the tile, 16 bits each
    HostBuffer<T> values_;
    HostBuffer<float> short_values_;  // in their place where all are exact
};

}  // namespace lsmr::cpu
