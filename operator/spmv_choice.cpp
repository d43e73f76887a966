#include "operator/spmv_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "memory/error.hpp"

namespace lsmr {
namespace {

[[noreturn]] void refuse(std::string_view text) {
    throw InputError(fmt::format(
        "no such product kernel: '{}'. There are rows-T with T = 1, 2, 4, 8, 16, 32, 128, 256, 512 threads a row; stream-TxC, products-TxC and balanced-TxC "
        "with TxC = 128x2048, 128x1024, 256x1024, 256x2048, each with +columns16, +fp32 or +bf16 (not products), +panelsN (N = 2 to 16), "
        "+atomic as wanted; "
        "cusparse-alg1, cusparse-alg2; bsr-RxC-columns (R, C = 1 to 32), bsr-RxR-blocks (R = 1, 2, 4, 8, 16, 32), each with +rowmajor, +fp32 or "
        "+bf16; bell-RxR, dia, dense, cusparse-bsr-RxC",
        text));
}

bool take(std::string_view& rest, std::string_view word) {
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
}

bool take(std::string_view& rest, int& number) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc()) return false;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return true;
}

const char* value_suffix(ValueForm values) { return values == ValueForm::fp32 ? "+fp32" : values == ValueForm::bf16 ? "+bf16" : ""; }

ValueForm take_values(std::string_view& rest) {
    if (take(rest, "+fp32")) return ValueForm::fp32;
    return take(rest, "+bf16") ? ValueForm::bf16 : ValueForm::as_vectors;
}

// "3x9" of blocks.
bool take_block(std::string_view& rest, SpmvChoice& choice) {
    const auto fits = [](int side) { return side >= 1 && side <= kLargestBlockSide; };
    return take(rest, choice.block_rows) && take(rest, "x") && take(rest, choice.block_cols) && fits(choice.block_rows) && fits(choice.block_cols);
}

bool is_power_square(const SpmvChoice& choice) {
    return choice.block_rows == choice.block_cols && (choice.block_rows & (choice.block_rows - 1)) == 0;
}

// The padded formats and cusparse-bsr; false where the text begins otherwise.
bool take_padded(std::string_view& rest, SpmvChoice& choice, std::string_view words) {
    if (rest == "dia" || rest == "dense") {
        choice.kernel = rest == "dia" ? SpmvKernel::dia : SpmvKernel::dense;
        return true;
    }
    if (take(rest, "cusparse-bsr-")) {
        choice.kernel = SpmvKernel::cusparse_bsr;
        if (!take_block(rest, choice) || !rest.empty()) refuse(words);
        return true;
    }
    if (take(rest, "bell-")) {
        choice.kernel = SpmvKernel::bell;
        choice.mapping = BlockMapping::blocks;
        choice.order = BlockOrder::row_major;
        if (!take_block(rest, choice) || !rest.empty() || !is_power_square(choice)) refuse(words);
        return true;
    }
    if (!take(rest, "bsr-")) return false;
    choice.kernel = SpmvKernel::bsr;
    if (!take_block(rest, choice)) refuse(words);
    if (take(rest, "-blocks")) choice.mapping = BlockMapping::blocks;
    else if (!take(rest, "-columns")) refuse(words);
    if (choice.mapping == BlockMapping::blocks && !is_power_square(choice)) refuse(words);
    if (take(rest, "+rowmajor")) choice.order = BlockOrder::row_major;
    choice.values = take_values(rest);
    if (!rest.empty()) refuse(words);
    return true;
}

bool is_one_of(int value, std::initializer_list<int> values) { return std::find(values.begin(), values.end(), value) != values.end(); }

}  // namespace

bool is_staged(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::stream || choice.kernel == SpmvKernel::products || choice.kernel == SpmvKernel::balanced;
}

bool has_value_forms(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::stream || choice.kernel == SpmvKernel::balanced || choice.kernel == SpmvKernel::bsr;
}

bool is_padded(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::bsr || choice.kernel == SpmvKernel::bell || choice.kernel == SpmvKernel::dia || choice.kernel == SpmvKernel::dense;
}

bool is_deterministic(const SpmvChoice& choice) {
    return choice.kernel != SpmvKernel::cusparse_alg1 && choice.kernel != SpmvKernel::cusparse_transposed && choice.kernel != SpmvKernel::cusparse_bsr &&
           !choice.atomic;
}

std::string text(const SpmvChoice& choice) {
    switch (choice.kernel) {
        case SpmvKernel::rows: return fmt::format("rows-{}", choice.threads);
        case SpmvKernel::cusparse_alg1: return "cusparse-alg1";
        case SpmvKernel::cusparse_alg2: return "cusparse-alg2";
        case SpmvKernel::cusparse_transposed: return "cusparse-transposed";
        case SpmvKernel::bell: return fmt::format("bell-{}x{}", choice.block_rows, choice.block_cols);
        case SpmvKernel::dia: return "dia";
        case SpmvKernel::dense: return "dense";
        case SpmvKernel::cusparse_bsr: return fmt::format("cusparse-bsr-{}x{}", choice.block_rows, choice.block_cols);
        case SpmvKernel::bsr:
            return fmt::format("bsr-{}x{}-{}{}{}", choice.block_rows, choice.block_cols, choice.mapping == BlockMapping::columns ? "columns" : "blocks",
                               choice.order == BlockOrder::row_major ? "+rowmajor" : "", value_suffix(choice.values));
        case SpmvKernel::stream:
        case SpmvKernel::products:
        case SpmvKernel::balanced: break;
    }
    const char* family = choice.kernel == SpmvKernel::stream ? "stream" : choice.kernel == SpmvKernel::products ? "products" : "balanced";
    std::string words = fmt::format("{}-{}x{}", family, choice.threads, choice.capacity);
    if (choice.narrow_columns) words += "+columns16";
    words += value_suffix(choice.values);
    if (choice.panels > 1) words += fmt::format("+panels{}", choice.panels);
    if (choice.atomic) words += "+atomic";
    return words;
}

SpmvChoice parse_spmv_choice(std::string_view words) {
    SpmvChoice choice;
    std::string_view rest = words;
    if (rest == "cusparse-alg1" || rest == "cusparse-alg2" || rest == "cusparse-transposed") {
        choice.kernel = rest == "cusparse-alg1"   ? SpmvKernel::cusparse_alg1
                        : rest == "cusparse-alg2" ? SpmvKernel::cusparse_alg2
                                                  : SpmvKernel::cusparse_transposed;
        return choice;
    }
    if (take_padded(rest, choice, words)) return choice;
    if (take(rest, "rows-")) {
        choice.kernel = SpmvKernel::rows;
        if (!take(rest, choice.threads) || !rest.empty() || !is_one_of(choice.threads, {1, 2, 4, 8, 16, 32, 128, 256, 512})) refuse(words);
        return choice;
    }
    if (take(rest, "stream-")) choice.kernel = SpmvKernel::stream;
    else if (take(rest, "products-")) choice.kernel = SpmvKernel::products;
    else if (take(rest, "balanced-")) choice.kernel = SpmvKernel::balanced;
    else refuse(words);
    if (!take(rest, choice.threads) || !take(rest, "x") || !take(rest, choice.capacity)) refuse(words);
    if (!is_one_of(choice.threads, {128, 256}) || !is_one_of(choice.capacity, {1024, 2048})) refuse(words);
    if (take(rest, "+columns16")) choice.narrow_columns = true;
    choice.values = take_values(rest);
    if (take(rest, "+panels") && (!take(rest, choice.panels) || choice.panels < 2 || choice.panels > 16)) refuse(words);
    if (take(rest, "+atomic")) choice.atomic = true;
    if (!rest.empty()) refuse(words);
    if (choice.kernel == SpmvKernel::products && choice.values != ValueForm::as_vectors) refuse(words);
    return choice;
}

}  // namespace lsmr
