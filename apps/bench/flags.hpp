// Flags that the subcommands of lsmr_bench share: their parsing, and the matrix that they name.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/read.hpp"
#include "operator/csr_matrix.hpp"
#include "solver/options.hpp"

namespace lsmr {

// The flags as text; a subcommand's own ones in `own`, a table of names (as "json" or "quiet,q") to whether they take a
// value. The shared ones below are always there, and one positional argument, "matrix". Throws UsageError, with the
// nearest known flag.
using FlagTable = std::map<std::string, bool>;
boost::program_options::variables_map parse_flags(std::span<const std::string> args, const FlagTable& own);

// Values. Throw UsageError that names the flag.
std::vector<std::string> split(const std::string& list);  // at commas
double positive_number(const std::string& flag, const std::string& text);
std::int64_t whole_number(const std::string& flag, const std::string& text, std::int64_t least, std::int64_t most);

// --device auto|cpu|cuda|cuda:N, --threads N, --precision fp64|fp32: into the members of the same names.
void read_device_flags(const boost::program_options::variables_map& given, PrepareOptions& options);

// A matrix: a file, or a generator with its parameters and seed.
struct MatrixSource {
    std::string path;       // empty: generated
    std::string generator;  // a generator's name, a stand-in's, or a suite label
    std::map<std::string, double> parameters;
    std::uint64_t seed = 1;
};
// From the positional argument, or --generate NAME [--scale S] [--set KEY=VALUE] [--seed N]. Throws UsageError.
MatrixSource matrix_source(const boost::program_options::variables_map& given);
// The same where --generate takes several names with commas, or "published": kPublished. Throws UsageError, InputError for a name that
// there is not.
std::vector<MatrixSource> matrix_sources(const boost::program_options::variables_map& given);

// What docs/benchmarks publishes: the matrices of the design's measurements, and the suite.
inline constexpr const char* kPublished[] = {"bench-small",   "bench-medium", "bench-stencil27", "bench-uniform8", "bench-tomography", "bench-powerlaw",
                                             "bench-bundle",  "bench-short",  "bench-spline",    "s1",             "s2",               "s3",
                                             "s4",            "s5",           "s6",              "s7",             "s8",               "s9",
                                             "s10",           "s11",          "s12",             "s13"};

struct NamedMatrix {
    CsrMatrix a;
    std::vector<double> b;              // of a generated problem; empty: none
    std::string origin;                 // for people: the path, or recipe, sizes and seed
    std::vector<std::string> warnings;  // of the reader
    double seconds = 0;                 // to read or to make it
};
NamedMatrix load_matrix(const MatrixSource& source);

// Loads matrices one after the other; on request some are made ahead, in the background.
class MatrixQueue {
  public:
    // ahead: how many may be held or in the making; 1: each when it is asked for.
    MatrixQueue(std::vector<MatrixSource> sources, std::size_t ahead) : sources_(std::move(sources)), ahead_(ahead) {}
    bool empty() const { return coming_.empty() && asked_ == sources_.size(); }
    NamedMatrix next();

  private:
    std::vector<MatrixSource> sources_;
    std::size_t ahead_;
    std::size_t asked_ = 0;
    std::deque<std::future<NamedMatrix>> coming_;
};

// The lines of a help screen that describe the shared flags.
std::string matrix_flags_help();
// Of --generate with several names.
std::string published_help();
std::string device_flags_help();

}  // namespace lsmr
