// Which kernels an x86-64 CPU runs.
#include "operator/cpu/csr_rows.hpp"

namespace lsmr::cpu {

InstructionSet best_instruction_set() {
    static const InstructionSet best = [] {
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                          __builtin_cpu_supports("bmi2");
        if (!avx2) return InstructionSet::portable;
        const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        return avx512 ? InstructionSet::avx512 : InstructionSet::avx2;
    }();
    return best;
}

template <class T, class V, class C>
RowsKernel<T, V, C> rows_kernel(InstructionSet set) {
    switch (set) {
        case InstructionSet::portable: return rows_portable<T, V, C>;
        case InstructionSet::avx2: return rows_avx2<T, V, C>;
        case InstructionSet::avx512: return rows_avx512<T, V, C>;
    }
    return nullptr;
}

#define LSMR_INSTANTIATE(T, V, C) template RowsKernel<T, V, C> rows_kernel<T, V, C>(InstructionSet);
LSMR_ROW_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cpu
