#include "operator/operator_options.hpp"

namespace lsmr {

const char* name(SpmvKind kind) {
    switch (kind) {
        case SpmvKind::automatic: return "auto";
        case SpmvKind::own: return "own";
        case SpmvKind::cusparse: return "cusparse";
    }
    return "";
}

const char* name(StorageKind kind) {
    switch (kind) {
        case StorageKind::automatic: return "auto";
        case StorageKind::dual: return "dual";
        case StorageKind::single: return "single";
        case StorageKind::one_pass: return "one-pass";
        case StorageKind::tiles: return "tiles";
    }
    return "";
}

const char* name(NarrowKind kind) {
    switch (kind) {
        case NarrowKind::lossless: return "lossless";
        case NarrowKind::none: return "none";
        case NarrowKind::fp32_values: return "fp32-values";
    }
    return "";
}

}  // namespace lsmr
