#include "exit_codes.hpp"

#include <new>

#include "data/write.hpp"

namespace lsmr {

int exit_code(const std::exception& error) {
    if (dynamic_cast<const UsageError*>(&error) != nullptr) return kExitUsage;
    if (const auto* input = dynamic_cast<const InputError*>(&error)) {
        return input->kind() == InputError::Kind::malformed ? kExitBadData : kExitNoInput;
    }
    if (const auto* output = dynamic_cast<const OutputError*>(&error)) {
        return output->kind() == OutputError::Kind::create ? kExitCannotCreate : kExitWriteError;
    }
    if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) return kExitNoMemory;
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return kExitNoMemory;
    if (const auto* device = dynamic_cast<const DeviceError*>(&error)) {
        return device->kind() == DeviceError::Kind::unavailable ? kExitUnavailable : kExitInternal;
    }
    return kExitInternal;
}

}  // namespace lsmr
