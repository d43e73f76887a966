// A piece of work on a stream as a graph, and what the graph holds. For CUDA code only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "memory/cuda_check.hpp"

namespace lsmr {

// Owns a captured graph.
class CapturedGraph {
  public:
    // Runs `work`, which queues on `stream`; nothing of it is executed. Work may not allocate, wait, or read results.
    template <class Work>
    CapturedGraph(cudaStream_t stream, const Work& work) {
        // Thread-local: other threads of the host program may allocate meanwhile.
        LSMR_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        try {
            work();
        } catch (...) {
            LSMR_CHECK_NOTHROW(cudaStreamEndCapture(stream, &graph_));
            cudaGetLastError();  // that the capture is invalid is what the exception says; the next check of a launch must not find it
            destroy();
            throw;
        }
        LSMR_CHECK(cudaStreamEndCapture(stream, &graph_));
    }
    ~CapturedGraph() { destroy(); }
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;

    cudaGraph_t get() const { return graph_; }
    std::int64_t kernels() const {
        std::size_t count = 0;
        LSMR_CHECK(cudaGraphGetNodes(graph_, nullptr, &count));
        std::vector<cudaGraphNode_t> nodes(count);
        if (count > 0) LSMR_CHECK(cudaGraphGetNodes(graph_, nodes.data(), &count));
        std::int64_t kernels = 0;
        for (const cudaGraphNode_t node : nodes) {
            cudaGraphNodeType type{};
            LSMR_CHECK(cudaGraphNodeGetType(node, &type));
            kernels += type == cudaGraphNodeTypeKernel;
        }
        return kernels;
    }

  private:
    void destroy() {
        if (graph_) LSMR_CHECK_NOTHROW(cudaGraphDestroy(graph_));
    }
    cudaGraph_t graph_ = nullptr;
};

}  // namespace lsmr
