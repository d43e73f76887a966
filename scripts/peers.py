#!/usr/bin/env python3
"""Time what users of Python run on a matrix: CuPy's or SciPy's lsmr, or SciPy's lsqr.

  scripts/peers.py ENGINE A.npz|A.mtx [--dtype f64[,f32]] [--iterations 100] [--repeat 3]

ENGINE: cupy-lsmr, scipy-lsmr, scipy-lsqr. b = A @ ones + 0.01 * noise (seed 0).
Prints a JSON line for each type, which `lsmr_bench solve --peers FILE` reads: seconds per iteration as the median of
(time of K + 10 iterations - time of 10) / K, so that start-up is left out. atol = btol = conlim = 0 keeps the engine
running; where it still stops early (its tests at machine precision), "iterations_run" tells.
"""
import argparse
import json
import statistics
import time

import numpy as np
import scipy
import scipy.io
import scipy.sparse
import scipy.sparse.linalg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["cupy-lsmr", "scipy-lsmr", "scipy-lsqr"])
    parser.add_argument("matrix")
    parser.add_argument("--dtype", default="f64", type=lambda words: words.split(","))
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if not set(options.dtype) <= {"f64", "f32"}:
        parser.error("--dtype: expected f64, f32, or both with a comma")
    read = scipy.sparse.load_npz if options.matrix.endswith(".npz") else scipy.io.mmread
    a = scipy.sparse.csr_matrix(read(options.matrix))
    for dtype in options.dtype:
        measure(options, dtype, a)


def measure(options, name, a):
    dtype = np.float32 if name == "f32" else np.float64
    a = a.astype(dtype)
    m, n = a.shape
    b = (a @ np.ones(n, dtype) + 0.01 * np.random.default_rng(0).standard_normal(m)).astype(dtype)
    if options.engine == "cupy-lsmr":
        import cupy
        import cupyx.scipy.sparse
        import cupyx.scipy.sparse.linalg

        a, b = cupyx.scipy.sparse.csr_matrix(a), cupy.asarray(b)
        solve, limit = cupyx.scipy.sparse.linalg.lsmr, "maxiter"
        wait = cupy.cuda.Device().synchronize
    else:
        solve = scipy.sparse.linalg.lsmr if options.engine == "scipy-lsmr" else scipy.sparse.linalg.lsqr
        limit = "maxiter" if options.engine == "scipy-lsmr" else "iter_lim"

        def wait():
            pass

    def run(iterations):
        wait()
        start = time.perf_counter()
        result = solve(a, b, atol=0, btol=0, conlim=0, **{limit: iterations})
        wait()
        return time.perf_counter() - start, int(result[2])

    run(3)
    per_iteration = []
    for _ in range(options.repeat):
        short, short_iterations = run(10)
        long, iterations_run = run(10 + options.iterations)
        per_iteration.append((long - short) / max(1, iterations_run - short_iterations))
    print(json.dumps({
        "engine": options.engine, "dtype": name, "rows": m, "cols": n, "nnz": int(a.nnz),
        "scipy": scipy.__version__, "seconds_per_iteration": statistics.median(per_iteration),
        "spread": [min(per_iteration), max(per_iteration)], "iterations_run": iterations_run}), flush=True)


if __name__ == "__main__":
    main()
