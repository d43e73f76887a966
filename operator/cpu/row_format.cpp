#include "operator/cpu/row_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "memory/error.hpp"
#include "operator/cpu/csr_kernels.hpp"
#include "operator/cpu/place_format.hpp"
#include "operator/cpu/row_chunks.hpp"
#include "operator/formats/host_formats.hpp"

namespace lsmr::cpu {
namespace {

double filled(std::int64_t entries, std::int64_t places) {
    return places == 0 ? 100.0 : 100.0 * static_cast<double>(entries) / static_cast<double>(places);
}

template <class T>
class SellFormat final : public RowFormat<T> {
  public:
    SellFormat(const CsrMatrix& a, int exponent, const SpmvChoice& choice, InstructionSet set)
        : nnz_(a.nnz()), set_(set), kernel_(slice_kernel<T>(set)) {
        // The plan alone says whether there is too much padding.
        check_padding(choice, make_sell_plan(a.rows(), a.offsets(), choice.sigma).places(), a.nnz(), longest_row(a.rows(), a.offsets()));
        matrix_ = make_sell<T>(a, exponent, choice.sigma);
        std::vector<std::int64_t> places(matrix_.plan.offsets.size());
        std::transform(matrix_.plan.offsets.begin(), matrix_.plan.offsets.end(), places.begin(), [](std::uint32_t o) { return kSliceRows * std::int64_t{o}; });
        chunks_ = balanced_chunks(matrix_.plan.slices(), places.data());
    }
    void apply(double a, const T* x, double b, T* y, NormPartials* norm) const override {
        const SellPlan& plan = matrix_.plan;
        run_chunks(chunks_, a, b, y, norm, [&](std::int64_t first, std::int64_t end, Finish<T>& finish) {
            alignas(64) T sums[kSliceRows];
            for (std::int64_t s = first; s < end; ++s) {
                const std::int64_t begin = plan.offsets[static_cast<std::size_t>(s)];
                const std::int64_t width = plan.offsets[static_cast<std::size_t>(s) + 1] - begin;
                kernel_({matrix_.values.data() + kSliceRows * begin, matrix_.columns.data() + kSliceRows * begin, kSliceRows, width}, x, sums);
                const std::int64_t place = s * kSliceRows;
                for (std::int64_t i = 0; i < std::min(kSliceRows, plan.rows - place); ++i) finish(plan.row_of(place + i), sums[i]);
            }
        });
    }
    std::int64_t bytes() const override { return matrix_.bytes(); }
    std::string words() const override {
        return fmt::format("OpenMP, {}; {} slices, {:.1f} % of the places filled, {}", name(set_), matrix_.plan.slices(), filled(nnz_, matrix_.plan.places()),
                           matrix_.plan.order.empty() ? std::string("rows in their order") : fmt::format("rows sorted within {}", matrix_.plan.sigma));
    }

  private:
    std::int64_t nnz_;
    InstructionSet set_;
    SliceKernel<T> kernel_;
    SellMatrix<T> matrix_;
    std::vector<std::int64_t> chunks_;  // of slices
};

// Behind the entries of k's row.
template <class T>
std::int64_t end_of_row(const CooMatrix<T>& a, std::int64_t k, std::int64_t entries) {
    const std::int32_t row = a.rows[k];
    while (k < entries && a.rows[k] == row) ++k;
    return k;
}

// ELL, and HYB, whose rest is added to the sums of a slice before they are written.
template <class T>
class EllFormat final : public RowFormat<T> {
  public:
    EllFormat(const CsrMatrix& a, int exponent, const SpmvChoice& choice, InstructionSet set) : nnz_(a.nnz()), set_(set), kernel_(slice_kernel<T>(set)) {
        const std::int64_t longest = longest_row(a.rows(), a.offsets());
        const bool hyb = choice.kernel == SpmvKernel::hyb;
        const std::int64_t width = hyb ? hyb_width(a.rows(), a.offsets(), choice.quantile) : longest;
        if (hyb) width_words_ = hyb_width_words(width, choice.quantile);
        check_padding(choice, kSliceRows * slices_of(a.rows()) * width, a.nnz(), longest);
        ell_ = make_ell<T>(a, exponent, width);
        if (hyb) rest_ = make_coo<T>(a, exponent, width);
        const std::vector<std::int64_t> rest = rest_offsets(a.rows(), a.offsets(), width);
        const std::int64_t slices = slices_of(a.rows());
        std::vector<std::int64_t> work(static_cast<std::size_t>(slices) + 1);
        for (std::int64_t s = 0; s <= slices; ++s) {
            const auto at = static_cast<std::size_t>(s);
            const std::int64_t before = rest[static_cast<std::size_t>(std::min(s * kSliceRows, a.rows()))];
            if (hyb) slice_rest_.push_back(before);
            work[at] = s * kSliceRows * width + before;
        }
        chunks_ = balanced_chunks(slices, work.data());
    }
    void apply(double a, const T* x, double b, T* y, NormPartials* norm) const override {
        run_chunks(chunks_, a, b, y, norm, [&](std::int64_t first, std::int64_t end, Finish<T>& finish) {
            alignas(64) T sums[kSliceRows];
            for (std::int64_t s = first; s < end; ++s) {
                const std::int64_t row = s * kSliceRows;
                kernel_({ell_.values.data() + row, ell_.columns.data() + row, ell_.stride, ell_.width}, x, sums);
                if (!slice_rest_.empty()) add_rest(s, x, sums);
                for (std::int64_t i = 0; i < std::min(kSliceRows, ell_.rows - row); ++i) finish(row + i, sums[i]);
            }
        });
    }
    std::int64_t bytes() const override { return ell_.bytes() + rest_.bytes() + static_cast<std::int64_t>(8 * slice_rest_.size()); }
    std::string words() const override {
        const std::int64_t places = ell_.stride * ell_.width;
        if (width_words_.empty()) return fmt::format("OpenMP, {}; width {}, {:.1f} % of the places filled", name(set_), ell_.width, filled(nnz_, places));
        return fmt::format("OpenMP, {}; ELL of width {}, {} places; {} entries in COO", name(set_), width_words_, places, rest_.values.size());
    }

  private:
    void add_rest(std::int64_t slice, const T* x, T* sums) const {
        const auto at = static_cast<std::size_t>(slice);
        for (std::int64_t k = slice_rest_[at]; k < slice_rest_[at + 1];) {
            const std::int64_t end = end_of_row(rest_, k, slice_rest_[at + 1]);
            sums[rest_.rows[k] - slice * kSliceRows] += row_product(rest_.values.data() + k, rest_.columns.data() + k, end - k, x);
            k = end;
        }
    }

    std::int64_t nnz_;
    InstructionSet set_;
    SliceKernel<T> kernel_;
    std::string width_words_;  // empty: ELL alone
    EllMatrix<T> ell_;
    CooMatrix<T> rest_;
    std::vector<std::int64_t> slice_rest_;  // where the rest of each slice begins, and the end; empty: ELL alone
    std::vector<std::int64_t> chunks_;      // of slices
};

template <class T>
class CooFormat final : public RowFormat<T> {
  public:
    CooFormat(const CsrMatrix& a, int exponent) : matrix_(make_coo<T>(a, exponent, 0)), chunks_(balanced_chunks(a.rows(), a.offsets())) {}
    void apply(double a, const T* x, double b, T* y, NormPartials* norm) const override {
        run_chunks(chunks_, a, b, y, norm, [&](std::int64_t first, std::int64_t end, Finish<T>& finish) {
            const std::int64_t entries = matrix_.rows.size();
            std::int64_t k = std::lower_bound(matrix_.rows.begin(), matrix_.rows.end(), static_cast<std::int32_t>(first)) - matrix_.rows.begin();
            for (std::int64_t row = first; row < end; ++row) {
                const std::int64_t next = k < entries && matrix_.rows[k] == row ? end_of_row(matrix_, k, entries) : k;
                finish(row, row_product(matrix_.values.data() + k, matrix_.columns.data() + k, next - k, x));
                k = next;
            }
        });
    }
    std::int64_t bytes() const override { return matrix_.bytes(); }
    std::string words() const override { return fmt::format("OpenMP, {} entries", matrix_.values.size()); }

  private:
    CooMatrix<T> matrix_;
    std::vector<std::int64_t> chunks_;  // of rows
};

}  // namespace

template <class T>
std::unique_ptr<RowFormat<T>> make_row_format(const CsrMatrix& a, int exponent, const SpmvChoice& choice, InstructionSet set) {
    if (!is_format(choice) || choice.narrow_columns || choice.values != ValueForm::as_vectors || choice.atomic) {
        throw InputError(fmt::format("the kernel {} needs a GPU: this operator is on the CPU", text(choice)));
    }
    switch (choice.kernel) {
        case SpmvKernel::sell: return std::make_unique<SellFormat<T>>(a, exponent, choice, set);
        case SpmvKernel::ell:
        case SpmvKernel::hyb: return std::make_unique<EllFormat<T>>(a, exponent, choice, set);
        case SpmvKernel::coo: return std::make_unique<CooFormat<T>>(a, exponent);
        default: return make_place_format<T>(a, exponent, choice);
    }
}
template std::unique_ptr<RowFormat<double>> make_row_format(const CsrMatrix&, int, const SpmvChoice&, InstructionSet);
template std::unique_ptr<RowFormat<float>> make_row_format(const CsrMatrix&, int, const SpmvChoice&, InstructionSet);

}  // namespace lsmr::cpu
