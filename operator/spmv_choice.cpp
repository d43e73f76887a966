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
        "+atomic as wanted; sell-32, sell-32-S with S = 32, 64, ... 65536 (rows sorted within S), ell, hyb, hyb-qN with N = 1 to 100 %, coo, "
        "each with +columns16 (sell), +fp32 or +bf16, +atomic (hyb, coo); "
        "cusparse-alg1, cusparse-alg2",
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

bool is_power_of_two(int value, int least, int most) { return value >= least && value <= most && (value & (value - 1)) == 0; }

// "+columns16", "+fp32" or "+bf16", "+panelsN", "+atomic", in this order.
std::string suffixes(const SpmvChoice& choice) {
    std::string words;
    if (choice.narrow_columns) words += "+columns16";
    if (choice.values == ValueForm::fp32) words += "+fp32";
    if (choice.values == ValueForm::bf16) words += "+bf16";
    if (choice.panels > 1) words += fmt::format("+panels{}", choice.panels);
    if (choice.atomic) words += "+atomic";
    return words;
}

// The formats but for their suffixes; false: none of them.
bool take_format(std::string_view& rest, SpmvChoice& choice) {
    if (take(rest, "sell-32")) {
        choice.kernel = SpmvKernel::sell;
        return !take(rest, "-") || (take(rest, choice.sigma) && is_power_of_two(choice.sigma, 32, 65536));
    }
    if (take(rest, "hyb")) {
        choice.kernel = SpmvKernel::hyb;
        return !take(rest, "-q") || (take(rest, choice.quantile) && choice.quantile >= 1 && choice.quantile <= 100);
    }
    if (take(rest, "ell")) choice.kernel = SpmvKernel::ell;
    else if (take(rest, "coo")) choice.kernel = SpmvKernel::coo;
    else return false;
    return true;
}

bool is_one_of(int value, std::initializer_list<int> values) { return std::find(values.begin(), values.end(), value) != values.end(); }

}  // namespace

bool is_staged(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::stream || choice.kernel == SpmvKernel::products || choice.kernel == SpmvKernel::balanced;
}

bool is_format(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::sell || choice.kernel == SpmvKernel::ell || choice.kernel == SpmvKernel::hyb || choice.kernel == SpmvKernel::coo;
}

bool takes_narrow_columns(const SpmvChoice& choice) { return is_staged(choice) || choice.kernel == SpmvKernel::sell; }

bool takes_narrow_values(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::stream || choice.kernel == SpmvKernel::balanced || is_format(choice);
}

bool is_deterministic(const SpmvChoice& choice) {
    return choice.kernel != SpmvKernel::cusparse_alg1 && choice.kernel != SpmvKernel::cusparse_transposed && !choice.atomic;
}

std::string text(const SpmvChoice& choice) {
    switch (choice.kernel) {
        case SpmvKernel::rows: return fmt::format("rows-{}", choice.threads);
        case SpmvKernel::cusparse_alg1: return "cusparse-alg1";
        case SpmvKernel::cusparse_alg2: return "cusparse-alg2";
        case SpmvKernel::cusparse_transposed: return "cusparse-transposed";
        case SpmvKernel::sell: return (choice.sigma > 1 ? fmt::format("sell-32-{}", choice.sigma) : std::string("sell-32")) + suffixes(choice);
        case SpmvKernel::ell: return "ell" + suffixes(choice);
        case SpmvKernel::hyb: return (choice.quantile > 0 ? fmt::format("hyb-q{}", choice.quantile) : std::string("hyb")) + suffixes(choice);
        case SpmvKernel::coo: return "coo" + suffixes(choice);
        case SpmvKernel::stream:
        case SpmvKernel::products:
        case SpmvKernel::balanced: break;
    }
    const char* family = choice.kernel == SpmvKernel::stream ? "stream" : choice.kernel == SpmvKernel::products ? "products" : "balanced";
    return fmt::format("{}-{}x{}", family, choice.threads, choice.capacity) + suffixes(choice);
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
    if (take(rest, "rows-")) {
        choice.kernel = SpmvKernel::rows;
        if (!take(rest, choice.threads) || !rest.empty() || !is_one_of(choice.threads, {1, 2, 4, 8, 16, 32, 128, 256, 512})) refuse(words);
        return choice;
    }
    const bool format = rest.starts_with("sell") || rest.starts_with("ell") || rest.starts_with("hyb") || rest.starts_with("coo");
    if (format) {
        if (!take_format(rest, choice)) refuse(words);
    } else if (take(rest, "stream-")) choice.kernel = SpmvKernel::stream;
    else if (take(rest, "products-")) choice.kernel = SpmvKernel::products;
    else if (take(rest, "balanced-")) choice.kernel = SpmvKernel::balanced;
    else refuse(words);
    if (is_staged(choice) && (!take(rest, choice.threads) || !take(rest, "x") || !take(rest, choice.capacity))) refuse(words);
    if (!is_one_of(choice.threads, {128, 256}) || !is_one_of(choice.capacity, {1024, 2048})) refuse(words);
    if (take(rest, "+columns16")) choice.narrow_columns = true;
    if (take(rest, "+fp32")) choice.values = ValueForm::fp32;
    else if (take(rest, "+bf16")) choice.values = ValueForm::bf16;
    if (take(rest, "+panels") && (!take(rest, choice.panels) || choice.panels < 2 || choice.panels > 16)) refuse(words);
    if (take(rest, "+atomic")) choice.atomic = true;
    if (!rest.empty()) refuse(words);
    if (choice.narrow_columns && !takes_narrow_columns(choice)) refuse(words);
    if (choice.values != ValueForm::as_vectors && !takes_narrow_values(choice)) refuse(words);
    if (choice.panels > 1 && !is_staged(choice)) refuse(words);
    if (choice.atomic && !is_staged(choice) && choice.kernel != SpmvKernel::hyb && choice.kernel != SpmvKernel::coo) refuse(words);
    return choice;
}

SpmvChoice parse_format(std::string_view words) {
    try {
        const SpmvChoice choice = parse_spmv_choice(words == "sell" ? "sell-32-1024" : words);
        if (is_format(choice)) return choice;
    } catch (const InputError&) {
    }
    throw InputError(fmt::format("no such format: '{}'. There are sell (rows sorted within 1024), sell-32, sell-32-S, ell, hyb, hyb-qN, coo, with the "
                                 "suffixes of their kernels", words));
}

}  // namespace lsmr
