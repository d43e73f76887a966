#include "operator/spmv_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "memory/error.hpp"

namespace lsmr {
namespace {

[[noreturn]] void refuse(std::string_view text) {
    throw InputError(fmt::format(
        "no such product kernel: '{}'. There are rows-T with T = 1, 2, 4, 8, 16, 32, 128, 256, 512 threads a row; stream-TxC and balanced-TxC "
        "with TxC = 128x2048, 128x1024, 256x1024, 256x2048, merge-TxC with 128x1024, 256x1024, each with +columns16, +fp32 or +bf16 (not merge), "
        "+panelsN (N = 2 to 16), "
        "+atomic as wanted; window, window-N with windows of up to N columns (8, 16, ... 32760; with +fp32 or +bf16); sell-32, sell-32-S with S = "
        "32, 64, ... 65536 (rows sorted within S), ell, hyb, hyb-qN with N = 1 to 100 %, coo, "
        "each with +columns16 (sell), +fp32 or +bf16, +atomic (hyb, coo); bsr-RxC-stream (R, C = 1 to 32; with +fp32 or +bf16), "
        "bsr-RxC-columns and bsr-RxR-blocks (R = 1, 2, 4, 8, 16, 32; with +rowmajor); bell-RxR, dia, dense; cusparse-alg1, cusparse-alg2, "
        "cusparse-bsr-RxC",
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

bool is_one_of(int value, std::initializer_list<int> values) { return std::find(values.begin(), values.end(), value) != values.end(); }
bool is_power_of_two(int value, int least, int most) { return value >= least && value <= most && (value & (value - 1)) == 0; }

// "3x9" of blocks.
bool take_block(std::string_view& rest, SpmvChoice& choice) {
    const auto fits = [](int side) { return side >= 1 && side <= kLargestBlockSide; };
    return take(rest, choice.block_rows) && take(rest, "x") && take(rest, choice.block_cols) && fits(choice.block_rows) && fits(choice.block_cols);
}

// All that comes before the suffixes; false: that is no kernel.
bool take_kernel(std::string_view& rest, SpmvChoice& choice) {
    const auto is = [&](std::string_view word, SpmvKernel kernel) {
        if (!take(rest, word)) return false;
        choice.kernel = kernel;
        return true;
    };
    if (is("rows-", SpmvKernel::rows)) return take(rest, choice.threads) && is_one_of(choice.threads, {1, 2, 4, 8, 16, 32, 128, 256, 512});
    if (is("stream-", SpmvKernel::stream) || is("balanced-", SpmvKernel::balanced)) {
        return take(rest, choice.threads) && take(rest, "x") && take(rest, choice.capacity) && is_one_of(choice.threads, {128, 256}) &&
               is_one_of(choice.capacity, {1024, 2048});
    }
    if (is("merge-", SpmvKernel::merge)) {
        return take(rest, choice.threads) && take(rest, "x") && take(rest, choice.capacity) && is_one_of(choice.threads, {128, 256}) && choice.capacity == 1024;
    }
    if (is("window", SpmvKernel::window)) {
        choice.capacity = 0;
        return !take(rest, "-") || (take(rest, choice.capacity) && choice.capacity >= 8 && choice.capacity <= kLargestWindow && choice.capacity % 8 == 0);
    }
    if (is("sell-32", SpmvKernel::sell)) return !take(rest, "-") || (take(rest, choice.sigma) && is_power_of_two(choice.sigma, 32, 65536));
    if (is("hyb", SpmvKernel::hyb)) return !take(rest, "-q") || (take(rest, choice.quantile) && choice.quantile >= 1 && choice.quantile <= 100);
    if (is("bsr-", SpmvKernel::bsr)) {
        if (!take_block(rest, choice)) return false;
        choice.mapping = BlockMapping::stream;
        if (take(rest, "-stream")) return true;
        choice.mapping = BlockMapping::columns;
        if (take(rest, "-columns")) return true;
        choice.mapping = BlockMapping::blocks;
        return take(rest, "-blocks") && is_power_square(choice);
    }
    if (is("bell-", SpmvKernel::bell)) {
        choice.mapping = BlockMapping::blocks;
        choice.order = BlockOrder::row_major;
        return take_block(rest, choice) && is_power_square(choice);
    }
    if (is("cusparse-bsr-", SpmvKernel::cusparse_bsr)) return take_block(rest, choice);
    return is("ell", SpmvKernel::ell) || is("coo", SpmvKernel::coo) || is("dia", SpmvKernel::dia) || is("dense", SpmvKernel::dense) ||
           is("cusparse-alg1", SpmvKernel::cusparse_alg1) || is("cusparse-alg2", SpmvKernel::cusparse_alg2) ||
           is("cusparse-transposed", SpmvKernel::cusparse_transposed);
}

// "+rowmajor", "+columns16", "+fp32" or "+bf16", "+panelsN", "+atomic", in this order.
std::string suffixes(const SpmvChoice& choice) {
    std::string words;
    if (choice.kernel == SpmvKernel::bsr && choice.order == BlockOrder::row_major) words += "+rowmajor";
    if (choice.narrow_columns) words += "+columns16";
    if (choice.values == ValueForm::fp32) words += "+fp32";
    if (choice.values == ValueForm::bf16) words += "+bf16";
    if (choice.panels > 1) words += fmt::format("+panels{}", choice.panels);
    if (choice.atomic) words += "+atomic";
    return words;
}

}  // namespace

bool is_staged(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::stream || choice.kernel == SpmvKernel::balanced || choice.kernel == SpmvKernel::merge;
}

bool is_format(const SpmvChoice& choice) {
    switch (choice.kernel) {
        case SpmvKernel::sell:
        case SpmvKernel::ell:
        case SpmvKernel::hyb:
        case SpmvKernel::coo:
        case SpmvKernel::bsr:
        case SpmvKernel::bell:
        case SpmvKernel::dia:
        case SpmvKernel::dense: return true;
        default: return false;
    }
}

bool takes_narrow_columns(const SpmvChoice& choice) { return is_staged(choice) || choice.kernel == SpmvKernel::sell; }

bool takes_narrow_values(const SpmvChoice& choice) {
    switch (choice.kernel) {
        case SpmvKernel::stream:
        case SpmvKernel::balanced:
        case SpmvKernel::window:
        case SpmvKernel::sell:
        case SpmvKernel::ell:
        case SpmvKernel::hyb:
        case SpmvKernel::coo: return true;
        case SpmvKernel::bsr: return choice.mapping == BlockMapping::stream;
        default: return false;
    }
}

bool is_power_square(const SpmvChoice& choice) {
    return choice.block_rows == choice.block_cols && is_power_of_two(choice.block_rows, 1, kLargestBlockSide);
}

bool is_deterministic(const SpmvChoice& choice) {
    return choice.kernel != SpmvKernel::cusparse_alg1 && choice.kernel != SpmvKernel::cusparse_transposed && choice.kernel != SpmvKernel::cusparse_bsr &&
           !choice.atomic;
}

std::string text(const SpmvChoice& choice) {
    const auto block = [&] { return fmt::format("{}x{}", choice.block_rows, choice.block_cols); };
    const auto item = [&] { return fmt::format("{}x{}", choice.threads, choice.capacity); };
    const auto mapping = [&] {
        return choice.mapping == BlockMapping::stream ? "-stream" : choice.mapping == BlockMapping::columns ? "-columns" : "-blocks";
    };
    const auto kernel = [&]() -> std::string {
        switch (choice.kernel) {
            case SpmvKernel::rows: return fmt::format("rows-{}", choice.threads);
            case SpmvKernel::stream: return "stream-" + item();
            case SpmvKernel::merge: return "merge-" + item();
            case SpmvKernel::balanced: return "balanced-" + item();
            case SpmvKernel::window: return choice.capacity > 0 ? fmt::format("window-{}", choice.capacity) : "window";
            case SpmvKernel::cusparse_alg1: return "cusparse-alg1";
            case SpmvKernel::cusparse_alg2: return "cusparse-alg2";
            case SpmvKernel::cusparse_transposed: return "cusparse-transposed";
            case SpmvKernel::sell: return choice.sigma > 1 ? fmt::format("sell-32-{}", choice.sigma) : "sell-32";
            case SpmvKernel::ell: return "ell";
            case SpmvKernel::hyb: return choice.quantile > 0 ? fmt::format("hyb-q{}", choice.quantile) : "hyb";
            case SpmvKernel::coo: return "coo";
            case SpmvKernel::bsr: return "bsr-" + block() + mapping();
            case SpmvKernel::bell: return "bell-" + block();
            case SpmvKernel::dia: return "dia";
            case SpmvKernel::dense: return "dense";
            case SpmvKernel::cusparse_bsr: return "cusparse-bsr-" + block();
        }
        throw InternalError("text: no such kernel");
    };
    return kernel() + suffixes(choice);
}

SpmvChoice parse_spmv_choice(std::string_view words) {
    SpmvChoice choice;
    std::string_view rest = words;
    if (!take_kernel(rest, choice)) refuse(words);
    const bool row_major = take(rest, "+rowmajor");
    if (row_major) choice.order = BlockOrder::row_major;
    choice.narrow_columns = take(rest, "+columns16");
    if (take(rest, "+fp32")) choice.values = ValueForm::fp32;
    else if (take(rest, "+bf16")) choice.values = ValueForm::bf16;
    const bool panels = take(rest, "+panels");
    if (panels && (!take(rest, choice.panels) || choice.panels < 2 || choice.panels > 16)) refuse(words);
    choice.atomic = take(rest, "+atomic");
    if (!rest.empty()) refuse(words);
    if (row_major && (choice.kernel != SpmvKernel::bsr || choice.mapping == BlockMapping::stream)) refuse(words);
    if (choice.narrow_columns && !takes_narrow_columns(choice)) refuse(words);
    if (choice.values != ValueForm::as_vectors && !takes_narrow_values(choice)) refuse(words);
    if (panels && !is_staged(choice)) refuse(words);
    if (choice.atomic && !is_staged(choice) && choice.kernel != SpmvKernel::hyb && choice.kernel != SpmvKernel::coo) refuse(words);
    return choice;
}

SpmvChoice parse_format(std::string_view words) {
    try {
        const SpmvChoice choice = parse_spmv_choice(words == "sell" ? "sell-32-1024" : words);
        if (is_format(choice)) return choice;
    } catch (const InputError&) {
    }
    throw InputError(fmt::format("no such format: '{}'. There are sell (rows sorted within 1024), sell-32, sell-32-S, ell, hyb, hyb-qN, coo, bsr-RxC-stream, "
                                 "bsr-RxC-columns, bsr-RxR-blocks, bell-RxR, dia, dense, with the suffixes of their kernels", words));
}

}  // namespace lsmr
