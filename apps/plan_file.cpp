#include "plan_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "exit_codes.hpp"
#include "memory/cuda_context.hpp"

namespace lsmr {
namespace {

constexpr const char* kSchema = "lsmr_plan/1";

// Of a saved solve; empty where there is none of that name.
std::string_view setting(const Checkpoint& checkpoint, std::string_view name) {
    for (const auto& [name_of_setting, value] : checkpoint.identity.settings) {
        if (name_of_setting == name) return value;
    }
    return {};
}

}  // namespace

std::string plan_text(const CsrMatrix& a, Precision precision, const PreparedInfo& prepared) {
    const OperatorPlan& plan = prepared.plan;
    const bool one_pass = plan.storage == StorageKind::one_pass;
    if (!plan.forward_decision.choice && !(one_pass && prepared.device == DeviceKind::cuda))
        throw UsageError("--save-plan: a plan is of kernels on a GPU, or of a forced format; this solve ran on the CPU");
    nlohmann::ordered_json json{{"schema", kSchema},
                                {"rows", a.rows()},
                                {"cols", a.cols()},
                                {"nnz", a.nnz()},
                                {"precision", name(precision)},
                                {"device", prepared.device_name},
                                {"storage", name(plan.storage)},
                                {"order", name(plan.order.kind)}};
    if (!one_pass) {
        json["kernel_a"] = text(*plan.forward_decision.choice);
        json["reason_a"] = plan.forward_decision.reason;
    }
    if (prepared.executor != ExecutorKind::automatic) json["executor"] = name(prepared.executor);  // the CPU has but one
    if (plan.storage == StorageKind::dual && plan.adjoint_decision.choice) {
        json["kernel_at"] = text(*plan.adjoint_decision.choice);
        json["reason_at"] = plan.adjoint_decision.reason;
    }
    return json.dump(2) + "\n";
}

void read_plan(std::string_view text, const std::string& name_of_plan, const CsrMatrix& a, PrepareOptions& options) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    const auto refuse = [&](const std::string& why) { throw InputError(fmt::format("{}: {}", name_of_plan, why)); };
    if (!json.is_object() || json.value("schema", nlohmann::json()) != kSchema) refuse(fmt::format("is not a plan: expected JSON of the schema {}", kSchema));
    const auto whole = [&](const char* member) {
        if (!json.contains(member) || !json[member].is_number_integer()) refuse(fmt::format("the plan has no whole number \"{}\"", member));
        return json[member].get<std::int64_t>();
    };
    const auto word = [&](const char* member) {
        if (!json.contains(member) || !json[member].is_string()) refuse(fmt::format("the plan has no text \"{}\"", member));
        return json[member].get<std::string>();
    };
    if (whole("rows") != a.rows() || whole("cols") != a.cols() || whole("nnz") != a.nnz()) {
        refuse(fmt::format("the plan is of a matrix {} x {} with {} nonzeros, this one is {} x {} with {}", whole("rows"), whole("cols"),
                           whole("nnz"), a.rows(), a.cols(), a.nnz()));
    }
    if (word("precision") != name(options.precision))
        refuse(fmt::format("the plan is for {}, this solve is in {}", word("precision"), name(options.precision)));
    if (json.contains("executor")) {
        const std::string executor = word("executor");
        if (executor != "graph" && executor != "persistent") refuse(fmt::format("executor \"{}\": expected graph or persistent", executor));
        if (options.executor == ExecutorKind::automatic) options.executor = executor == "graph" ? ExecutorKind::graph : ExecutorKind::persistent;
    }
    const std::string storage = word("storage");
    if (storage != "dual" && storage != "single" && storage != "one-pass") refuse(fmt::format("storage \"{}\": expected dual, single or one-pass", storage));
    const std::string order = json.contains("order") ? word("order") : name(OrderKind::none);  // plans of old have none
    const std::optional<OrderKind> kind = order_named(order);
    if (!kind) refuse(fmt::format("order \"{}\": expected none, length, first, median or spectral", order));
    if (options.reorder == OrderKind::automatic) options.reorder = *kind;
    const auto kernel = [&](const char* member) {
        try {
            return parse_spmv_choice(word(member));
        } catch (const InputError& error) {
            refuse(error.what());
            throw;
        }
    };
    options.storage = storage == "dual" ? StorageKind::dual : storage == "single" ? StorageKind::single : StorageKind::one_pass;
    options.forward_kernel.reset();
    options.adjoint_kernel.reset();
    if (storage != "one-pass") options.forward_kernel = kernel("kernel_a");
    if (storage == "dual") options.adjoint_kernel = kernel("kernel_at");
}

void adopt_order(const Checkpoint& checkpoint, PrepareOptions& options) {
    if (options.reorder != OrderKind::automatic) return;
    const std::string_view saved = setting(checkpoint, "the order of rows and columns");
    if (const auto kind = order_named(saved.substr(0, saved.find(' ')))) options.reorder = *kind;
}

void adopt_kernels(const Checkpoint& checkpoint, PrepareOptions& options) {
    // What fits the other kind of device would be refused here for itself; the solve refuses the state, and says on which device it was saved.
    const bool on_gpu =
        options.device == DeviceKind::cuda || (options.device == DeviceKind::automatic && probe_cuda(options.device_index).usable);
    if ((setting(checkpoint, "the device") == "CPU") == on_gpu) return;
    if (options.executor == ExecutorKind::automatic) {
        for (const ExecutorKind kind : {ExecutorKind::graph, ExecutorKind::persistent}) {
            if (setting(checkpoint, "the executor") == name(kind)) options.executor = kind;
        }
    }
    if (options.storage == StorageKind::automatic) {
        for (const StorageKind kind : {StorageKind::dual, StorageKind::single, StorageKind::one_pass, StorageKind::tiles}) {
            if (setting(checkpoint, "the storage of A") == name(kind)) options.storage = kind;
        }
    }
    if (options.forward_kernel || options.adjoint_kernel || options.spmv != SpmvKind::automatic) return;
    // "stream-128x2048 (35662 items, 1056 blocks)"; on the CPU words that are no kernel's name.
    const auto named = [&](std::string_view product) -> std::optional<SpmvChoice> {
        const std::string_view saved = setting(checkpoint, product);
        try {
            const SpmvChoice choice = parse_spmv_choice(saved.substr(0, saved.find(' ')));
            if (choice.kernel != SpmvKernel::cusparse_transposed) return choice;
        } catch (const InputError&) {
        }
        return std::nullopt;
    };
    options.forward_kernel = named("the product with A");
    options.adjoint_kernel = named("the product with A^T");
}

}  // namespace lsmr
