#include "peers.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "memory/error.hpp"
#include "outputs.hpp"

namespace lsmr {

std::vector<PeerRecord> read_peers(const std::string& path) {
    std::istringstream in(read_text(path));
    std::vector<PeerRecord> peers;
    std::int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        try {
            const auto json = nlohmann::json::parse(line);
            PeerRecord peer;
            peer.engine = json.at("engine").get<std::string>();
            const auto type = json.at("dtype").get<std::string>();
            if (type != "f32" && type != "f64") throw InputError(path, number, 1, fmt::format("dtype is \"{}\", expected f32 or f64", type));
            peer.precision = type == "f64" ? Precision::fp64 : Precision::fp32;
            peer.rows = json.at("rows").get<std::int64_t>();
            peer.cols = json.at("cols").get<std::int64_t>();
            peer.nnz = json.at("nnz").get<std::int64_t>();
            peer.row.label = peer.engine;
            peer.row.on_gpu = peer.engine.starts_with("cupy");
            peer.row.seconds = json.at("seconds_per_iteration").get<double>();
            peer.row.least_seconds = json.at("spread").at(0).get<double>();
            peer.row.most_seconds = json.at("spread").at(1).get<double>();
            if (!(peer.row.seconds > 0)) throw InputError(path, number, 1, fmt::format("seconds_per_iteration is {}, expected a positive number", peer.row.seconds));
            peers.push_back(std::move(peer));
        } catch (const nlohmann::json::exception& error) {
            throw InputError(path, number, 1, fmt::format("expected a JSON object with engine, dtype, rows, cols, nnz, seconds_per_iteration and spread: {}", error.what()));
        }
    }
    if (peers.empty()) throw InputError(path + ": holds no measurements, expected one JSON object a line");
    return peers;
}

void add_peers(std::vector<PeerRecord>& peers, SolveTable& table) {
    for (PeerRecord& peer : peers) {
        if (peer.precision != table.precision || peer.rows != table.rows || peer.cols != table.cols || peer.nnz != table.nnz) continue;
        peer.used = true;
        table.solvers.push_back(peer.row);
    }
}

}  // namespace lsmr
