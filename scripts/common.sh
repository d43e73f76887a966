# Sourced by scripts/demo and scripts/test: installs what the build needs, configures, builds. Talks on standard error, so that
# standard output stays free for results. Sets `root` (the repository) and `build` (build/release).
# shellcheck shell=bash

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release

say() { printf '%s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Names of Debian packages that are needed and not there, judged by what the build would use: commands, headers, libraries.
missing_packages() {
    local cxx=${CXX:-c++}
    local libraries=(libboost-program-options-dev zlib1g-dev libeigen3-dev libfmt-dev nlohmann-json3-dev doctest-dev)
    command -v cmake >/dev/null || echo cmake
    command -v ninja >/dev/null || command -v ninja-build >/dev/null || echo ninja-build
    if ! command -v "$cxx" >/dev/null; then
        printf '%s\n' g++ "${libraries[@]}" # without a compiler they cannot be looked for; apt skips those that are there
        return
    fi
    "$cxx" -x c++ -std=c++20 -E -P -I/usr/include/eigen3 -I/usr/local/include/eigen3 - <<'PROBE'
#if !__has_include(<zlib.h>)
zlib1g-dev
#endif
#if !__has_include(<Eigen/Core>)
libeigen3-dev
#endif
#if !__has_include(<fmt/format.h>)
libfmt-dev
#endif
#if !__has_include(<nlohmann/json.hpp>)
nlohmann-json3-dev
#endif
#if !__has_include(<doctest/doctest.h>)
doctest-dev
#endif
PROBE
    echo 'int main() {}' | "$cxx" -x c++ - -o /dev/null -lboost_program_options 2>/dev/null || echo libboost-program-options-dev
}

# install_packages NAME...: through apt, as root or by sudo without a password; otherwise says what is missing and exits.
install_packages() {
    local as_root=() log=$root/build/packages.log
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
    if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
        say "These packages are missing (their names in Debian and Ubuntu):"
        say "  $*"
        if command -v apt-get >/dev/null; then say "Install them with: sudo apt-get install $*"; fi
        exit 1
    fi
    say "installing $* (log: build/packages.log)"
    mkdir -p "$root/build"
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0)
    # A source that cannot be reached is no reason to stop: the others may have everything.
    "${apt[@]}" update </dev/null >"$log" 2>&1 || true
    if ! "${apt[@]}" install --no-install-recommends "$@" </dev/null >>"$log" 2>&1; then
        tail -n 30 "$log" >&2
        die "installing failed: $*"
    fi
}

install_what_is_missing() {
    local missing
    missing=$(missing_packages)
    # shellcheck disable=SC2086  # names without blanks, one a line
    if [ -n "$missing" ]; then install_packages $missing; fi
}

# logged NAME COMMAND...: output to build/release/NAME.log, shown when the command fails.
logged() {
    local log=$build/$1.log
    shift
    if ! "$@" >"$log" 2>&1 </dev/null; then
        # The commands' own lines are longer than what they say.
        grep -v -e '^\[[0-9]*/[0-9]*\]' "$log" | cut -c 1-500 | tail -n 60 >&2
        die "failed: $* (all of it in ${log#"$root"/})"
    fi
}

cached() { sed -n "s|^$1:[A-Z]*=||p" "$build/CMakeCache.txt" 2>/dev/null; }

find_nvcc() { command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; } || true; }

# Whether build/release was configured here, by Ninja, with the CUDA compiler that there is now.
is_configured() {
    [ -f "$build/build.ninja" ] && [ "$(cached CMAKE_HOME_DIRECTORY)" = "$root" ] || return 1
    [ "$(cached LSMR_TESTS)" = ON ] || return 1
    local nvcc
    nvcc=$(cached CMAKE_CUDA_COMPILER)
    case $(cached LSMR_CUDA) in
        OFF) ;;
        *) if [ -n "$(find_nvcc)" ]; then [ -x "$nvcc" ]; else [ ! -e "$nvcc" ] && [[ $nvcc != /* ]]; fi ;;
    esac
}

configure() {
    if is_configured; then return; fi
    local options=(--preset release -G Ninja -DLSMR_TESTS=ON)
    if [ -f "$build/CMakeCache.txt" ]; then options+=(--fresh); fi
    # Warnings are errors with the compiler that CI uses; others may know more warnings.
    if [ "${CI:-}" != true ] && [ "$("${CXX:-c++}" -dumpversion)" != 12 ]; then options+=(-DLSMR_WERROR=OFF); fi
    mkdir -p "$build"
    rm -f "$build/build.ninja" # after a failure there is none, and the next run configures again
    (cd -- "$root" && logged configure cmake "${options[@]}")
    sed -n 's/^-- lsmr: //p' "$build/configure.log" >&2
}

# build_targets [TARGET...]: all of them without a name.
build_targets() {
    local targets=()
    if [ $# -gt 0 ]; then targets=(--target "$@"); fi
    # Said only when it takes a while. The read waits: its pipe is never written to.
    { read -rt 1 _ <> <(:) || say "building (log: build/release/build.log)"; } 9>&- &
    # shellcheck disable=SC2064  # this process, now
    trap "kill $! 2>/dev/null || true" EXIT
    CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} \
        logged build cmake --build "$build" "${targets[@]}"
    kill $! 2>/dev/null || true
    trap - EXIT
}

# prepare [TARGET...]: everything up to the built programs. Two at a time in one tree wait for each other.
prepare() {
    install_what_is_missing
    mkdir -p "$build"
    if command -v flock >/dev/null; then
        exec 9>"$build/.lock"
        flock 9
    fi
    configure
    build_targets "$@"
    exec 9>&-
}
