// Which kernels an x86-64 CPU runs.
#include <algorithm>
#include <type_traits>

#include "operator/cpu/csr_rows.hpp"

namespace lsmr::cpu {
namespace {

InstructionSet widest_of_this_cpu() {
    static const InstructionSet widest = [] {
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                          __builtin_cpu_supports("bmi2");
        const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        return avx512 ? InstructionSet::avx512 : avx2 ? InstructionSet::avx2 : InstructionSet::portable;
    }();
    return widest;
}

}  // namespace

template <class T>
InstructionSet best_instruction_set() {
    if constexpr (std::is_same_v<T, float>) return std::min(widest_of_this_cpu(), InstructionSet::avx2);
    else return widest_of_this_cpu();
}
template InstructionSet best_instruction_set<double>();
template InstructionSet best_instruction_set<float>();

template <class T, class V, class C>
RowsKernel<T, V, C> rows_kernel(InstructionSet set) {
    if constexpr (std::is_same_v<T, double>) {
        if (set == InstructionSet::avx512) return rows_avx512<V, C>;
    }
    return set == InstructionSet::portable ? rows_portable<T, V, C> : rows_avx2<T, V, C>;
}

template <class T, class V, class C>
SlicedKernel<T, V, C> sliced_kernel(InstructionSet set) {
    if constexpr (std::is_same_v<T, double>) {
        if (set == InstructionSet::avx512) return sliced_avx512<V, C>;
    }
    return set == InstructionSet::portable ? sliced_portable<T, V, C> : sliced_avx2<T, V, C>;
}

template <class T, class V, class C>
OnePassKernels<T, V, C> one_pass_kernels(InstructionSet set) {
    return set == InstructionSet::portable ? one_pass_portable<T, V, C>() : one_pass_avx2<T, V, C>();
}

template <class T, class V>
GroupKernels<T, V> group_kernels(InstructionSet set) {
    if constexpr (std::is_same_v<T, double>) {
        if (set == InstructionSet::avx512) return group_avx512<V>();
    }
    return set == InstructionSet::portable ? group_portable<T, V>() : group_avx2<T, V>();
}
#define LSMR_INSTANTIATE(T, V) template GroupKernels<T, V> group_kernels(InstructionSet);
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T, class V>
TileKernels<T, V> tile_kernels(InstructionSet set) {
    return set == InstructionSet::portable ? tile_portable<T, V>() : tile_avx2<T, V>();
}
#define LSMR_INSTANTIATE(T, V) template TileKernels<T, V> tile_kernels(InstructionSet);
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T>
SliceKernel<T> slice_kernel(InstructionSet set) {
    if constexpr (std::is_same_v<T, double>) {
        if (set == InstructionSet::avx512) return slice_avx512;
    }
    return set == InstructionSet::portable ? slice_portable<T> : slice_avx2<T>;
}
template SliceKernel<double> slice_kernel(InstructionSet);
template SliceKernel<float> slice_kernel(InstructionSet);

#define LSMR_INSTANTIATE(T, V, C)                                           \
    template RowsKernel<T, V, C> rows_kernel<T, V, C>(InstructionSet);     \
    template SlicedKernel<T, V, C> sliced_kernel<T, V, C>(InstructionSet); \
    template OnePassKernels<T, V, C> one_pass_kernels(InstructionSet);
LSMR_ROW_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cpu
