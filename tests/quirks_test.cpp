// The collection of reader traps under LSMR_SHARED_DATA/quirks: every file is read as its expected.json says, or
// refused.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/read.hpp"
#include "memory/error.hpp"

using namespace lsmr;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path kQuirks = fs::path(LSMR_SHARED_DATA) / "quirks";

// The files of one group with what is expected of them; says so where the collection is not there.
std::vector<std::pair<std::string, json>> group(const std::string& name) {
    std::vector<std::pair<std::string, json>> out;
    std::ifstream file(kQuirks / "expected.json");
    if (!file) {
        MESSAGE("skipped: no " << kQuirks.string());
        return out;
    }
    const json all = json::parse(file);
    for (const auto& [path, entry] : all.items()) {
        if (path.starts_with(name + "/")) out.emplace_back(path, entry.at("expect"));
    }
    CHECK(!out.empty());
    return out;
}

// Reads, or checks that the refusal says where.
template <class Read>
auto read_or_refuse(Read read, const std::string& path) -> std::optional<decltype(read(path))> {
    const std::string full = (kQuirks / path).string();
    try {
        return read(full);
    } catch (const InputError& error) {
        CHECK(std::string(error.what()).starts_with(full + ":"));
        CHECK(error.line() > 0);
        return std::nullopt;
    }
}

std::optional<MatrixFile> matrix(const std::string& path) {
    return read_or_refuse([](const std::string& full) { return read_matrix(full); }, path);
}

std::optional<DenseFile> dense(const std::string& path) {
    return read_or_refuse([](const std::string& full) { return read_dense(full); }, path);
}

void check_entries(const CsrMatrix& a, const json& expect) {
    CHECK(a.rows() == expect.at("rows").get<std::int64_t>());
    CHECK(a.cols() == expect.at("cols").get<std::int64_t>());
    const json& entries = expect.at("entries");
    CHECK(a.nnz() == static_cast<std::int64_t>(entries.size()));
    for (const json& entry : entries) {
        const std::int64_t row = entry.at(0).get<std::int64_t>() - 1;
        const std::int64_t col = entry.at(1).get<std::int64_t>() - 1;
        bool found = false;
        for (std::int64_t k = a.offsets()[row]; k < a.offsets()[row + 1]; ++k) {
            if (a.columns()[k] != col) continue;
            found = true;
            CHECK(a.values()[k] == entry.at(2).get<double>());
        }
        CHECK(found);
    }
}

}  // namespace

TEST_CASE("data: quirks that are valid are read as expected") {
    for (const auto& [path, expect] : group("valid")) {
        CAPTURE(path);
        const std::optional<MatrixFile> file = matrix(path);
        REQUIRE(file);
        check_entries(file->matrix, expect);
    }
}

TEST_CASE("data: quirks that are lenient are refused or read as expected") {
    for (const auto& [path, expect] : group("lenient")) {
        CAPTURE(path);
        const std::optional<MatrixFile> file = matrix(path);
        // An expectation in words leaves a choice; ours is to refuse.
        if (!expect.at("if_accepted").is_object()) {
            CHECK(!file);
        } else if (file) {
            check_entries(file->matrix, expect.at("if_accepted"));
        }
    }
}

TEST_CASE("data: quirks that are invalid are refused") {
    for (const auto& [path, expect] : group("invalid")) {
        CAPTURE(path);
        CHECK(!matrix(path));
        // Without a banner a file may still be a column of numbers; none of these is.
        CHECK(!dense(path));
    }
}

TEST_CASE("data: quirks of right-hand sides are read as expected") {
    for (const auto& [path, expect] : group("rhs")) {
        CAPTURE(path);
        const std::optional<DenseFile> file = dense(path);
        REQUIRE(file);  // a wrong length is found by whoever knows the matrix
        CHECK(file->rows * file->cols == static_cast<std::int64_t>(file->values.size()));
        const json values = expect.contains("values") ? expect["values"] : expect.value("if_accepted", json());
        if (values.is_array()) CHECK(file->values == values.get<std::vector<double>>());
    }
}
