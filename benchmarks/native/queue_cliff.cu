// Cost of a kernel boundary inside a replayed graph, after k further streams have each run one tiny kernel.
//
//   nvcc -O2 -o queue_cliff queue_cliff.cu && ./queue_cliff [processes per condition] [most variants]
//   hipcc -O2 -x hip -o queue_cliff queue_cliff.cu && ./queue_cliff      (not run on ROCm)
//
// Prints one JSON line per process (when the streams ran, variants, streams): microseconds per kernel of a linear graph of 1000 launches
// that cycle through `variants` different kernels, median of 21 replays. Every pair runs in a process of
// its own, because the effect belongs to the process.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>
#ifdef __HIP_PLATFORM_AMD__
#include <hip/hip_runtime.h>
#define RT(name) hip##name
#else
#include <cuda_runtime.h>
#define RT(name) cuda##name
#endif

#define CHECK(call)                                                                                     \
  do {                                                                                                  \
    auto status = (call);                                                                               \
    if (status != RT(Success)) {                                                                        \
      std::fprintf(stderr, "%s: %s\n", #call, RT(GetErrorString)(status));                              \
      std::exit(1);                                                                                     \
    }                                                                                                   \
  } while (0)

template <int Variant> __global__ void tiny(float *x) { x[threadIdx.x] += Variant; }

typedef void (*Kernel)(float *);
static const Kernel kernels[] = {tiny<1>, tiny<2>, tiny<3>, tiny<4>, tiny<5>, tiny<6>, tiny<7>, tiny<8>, tiny<9>, tiny<10>, tiny<11>, tiny<12>, tiny<13>, tiny<14>, tiny<15>, tiny<16>};

static int measure(int variants, int streams, const char *when) {
  const int launches = 1000, replays = 21;
  float *x;
  CHECK(RT(Malloc)(reinterpret_cast<void **>(&x), 4096));
  CHECK(RT(Memset)(x, 0, 4096));
  RT(Stream_t) main_stream, further;
  CHECK(RT(StreamCreate)(&main_stream));
  auto touch = [&] {
    for (int i = 0; i < streams; ++i) {
      CHECK(RT(StreamCreateWithFlags)(&further, RT(StreamNonBlocking)));
      tiny<1><<<1, 32, 0, further>>>(x);
      CHECK(RT(StreamSynchronize)(further));
    }
  };
  if (when[0] == 'b') touch();
  RT(Graph_t) graph;
  RT(GraphExec_t) executable;
  CHECK(RT(StreamBeginCapture)(main_stream, RT(StreamCaptureModeGlobal)));
  for (int i = 0; i < launches; ++i) kernels[i % variants]<<<1, 32, 0, main_stream>>>(x);
  CHECK(RT(StreamEndCapture)(main_stream, &graph));
  CHECK(RT(GraphInstantiate)(&executable, graph, nullptr, nullptr, 0));
  if (when[0] == 'a') touch();
  RT(Event_t) start, stop;
  CHECK(RT(EventCreate)(&start));
  CHECK(RT(EventCreate)(&stop));
  std::vector<float> times;
  for (int i = 0; i < replays + 3; ++i) {
    CHECK(RT(EventRecord)(start, main_stream));
    CHECK(RT(GraphLaunch)(executable, main_stream));
    CHECK(RT(EventRecord)(stop, main_stream));
    CHECK(RT(EventSynchronize)(stop));
    float milliseconds;
    CHECK(RT(EventElapsedTime)(&milliseconds, start, stop));
    if (i >= 3) times.push_back(milliseconds * 1000.f / launches);
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"when\": \"%s\", \"variants\": %d, \"streams\": %d, \"us_per_kernel\": %.4f}\n", when, variants,
              streams, times[times.size() / 2]);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4) return measure(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  const int processes = argc > 1 ? std::atoi(argv[1]) : 1;
  const int most_variants = argc > 2 ? std::atoi(argv[2]) : 16;
  const int variant_counts[] = {1, 4, 16};
  for (int process = 0; process < processes; ++process)
    for (const char *when : {"before", "after"})
      for (int variants : variant_counts)
        for (int streams = 0; streams <= 24 && variants <= most_variants; ++streams) {
          std::fflush(stdout);
          pid_t child = fork();
          if (child == 0) std::exit(measure(variants, streams, when));
          int status = 0;
          waitpid(child, &status, 0);
          if (status != 0) return 1;
        }
  return 0;
}
