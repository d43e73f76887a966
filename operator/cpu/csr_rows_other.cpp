// CPUs other than x86-64 run the portable kernels.
#include "operator/cpu/csr_rows.hpp"

namespace lsmr::cpu {

template <class T>
InstructionSet best_instruction_set() {
    return InstructionSet::portable;
}
template InstructionSet best_instruction_set<double>();
template InstructionSet best_instruction_set<float>();

template <class T, class V, class C>
RowsKernel<T, V, C> rows_kernel(InstructionSet) {
    return rows_portable<T, V, C>;
}

template <class T, class V, class C>
SlicedKernel<T, V, C> sliced_kernel(InstructionSet) {
    return sliced_portable<T, V, C>;
}

template <class T, class V, class C>
OnePassKernels<T, V, C> one_pass_kernels(InstructionSet) {
    return one_pass_portable<T, V, C>();
}

template <class T, class V>
GroupKernels<T, V> group_kernels(InstructionSet) {
    return group_portable<T, V>();
}
#define LSMR_INSTANTIATE(T, V) template GroupKernels<T, V> group_kernels(InstructionSet);
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T, class V>
TileKernels<T, V> tile_kernels(InstructionSet) {
    return tile_portable<T, V>();
}
#define LSMR_INSTANTIATE(T, V) template TileKernels<T, V> tile_kernels(InstructionSet);
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T>
SliceKernel<T> slice_kernel(InstructionSet) {
    return slice_portable<T>;
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
