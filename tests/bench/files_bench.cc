// What digest, save and load of a run cost beside the plainest use of as many bytes: a memcpy, a
// write with fsync, and a read.
//
//   build/tests/bench/bench_files [MODEL [ROUNDS [DIRECTORY]]]     (mlp:layers=8,width=2048 5)
//
// Medians of GB/s, and the median of the ratio of times in each round. Both of a pair run one after
// the other. Writes count as wall time, since the disk is waited for, everything else as processor
// time of this process: reads are of files that the system has in memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/wall_time.h"
#include "support/config.h"
#include "weft.h"

namespace {

using weft::bench::median;
using weft::bench::wall_seconds;

void must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "bench_files: %s\n", what);
  std::exit(1);
}

void must(weft_status status, const weft_error& err) { must(status >= 0, err.text); }

double processor(const std::function<void()>& f) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  f();
  return now() - begin;
}

void write_plain(const std::string& path, const std::vector<char>& bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  must(file >= 0, "cannot open the plain file");
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(file, bytes.data() + at, bytes.size() - at);
    must(n > 0, "cannot write the plain file");
    at += static_cast<size_t>(n);
  }
  must(fsync(file) == 0, "cannot sync the plain file");
  close(file);
}

void read_plain(const std::string& path, std::vector<char>& bytes) {
  const int file = open(path.c_str(), O_RDONLY);
  must(file >= 0, "cannot open the plain file");
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = read(file, bytes.data() + at, bytes.size() - at);
    must(n > 0, "cannot read the plain file");
    at += static_cast<size_t>(n);
  }
  close(file);
}

// Times of an operation of weft and of its yardstick, one pair per round.
struct Row {
  const char *what, *yardstick;
  std::vector<double> ours, plain;

  void print(double bytes) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / plain[i]);
    std::sort(ratios.begin(), ratios.end());
    std::printf("%-7s %7.2f GB/s   %-12s %7.2f GB/s   ratio %6.2f  (%.2f to %.2f)\n", what,
                bytes / median(ours) / 1e9, yardstick, bytes / median(plain) / 1e9, median(ratios),
                ratios.front(), ratios.back());
  }
};

}  // namespace

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "mlp:layers=8,width=2048";
  const int rounds = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 5;
  namespace fs = std::filesystem;
  std::string directory =
      (argc > 3 ? fs::path(argv[3]) : fs::temp_directory_path()) / "weft-bench-XXXXXX";
  must(mkdtemp(directory.data()) != nullptr, "cannot make a directory");

  weft_error err = sized<weft_error>();
  weft_model* model = nullptr;
  weft_preset_info info = sized<weft_preset_info>();
  must(weft_model_preset(name, 0, 1, &model, &info, &err), err);
  weft_optimizer sgd = unclipped();
  sgd.rule = WEFT_SGD;
  sgd.rate = 1e-4;
  weft_plan_config config = defaults(weft_plan_config_init);
  config.ranks = 1;
  config.optimizer = &sgd;
  weft_plan* plan = nullptr;
  must(weft_plan_new(model, &config, &plan, &err), err);
  weft_run* run = nullptr;
  must(weft_run_start(plan, nullptr, nullptr, &run, &err), err);

  const size_t bytes = sizeof(float) * static_cast<size_t>(weft_model_parameters(model));
  std::vector<char> from(bytes, 1), to(bytes, 2);
  const std::string plain = directory + "/plain", saved = directory + "/saved";
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = saved.c_str();
  Row digest{"digest", "memcpy", {}, {}}, written{"save", "write+fsync", {}, {}};
  Row loaded{"load", "read", {}, {}};
  for (int i = 0; i < rounds; ++i) {
    char text[33];
    digest.plain.push_back(processor([&] { std::memcpy(to.data(), from.data(), bytes); }));
    digest.ours.push_back(processor([&] { must(weft_run_digest(run, text, &err), err); }));
    written.plain.push_back(wall_seconds([&] { write_plain(plain, from); }));
    written.ours.push_back(wall_seconds([&] { must(weft_run_save(run, &save, &err), err); }));
    loaded.plain.push_back(processor([&] { read_plain(plain, to); }));
    loaded.ours.push_back(processor([&] {
      weft_checkpoint* checkpoint = nullptr;
      must(weft_checkpoint_open(saved.c_str(), &checkpoint, &err), err);
      must(weft_run_load(run, checkpoint, WEFT_LOAD_ALL, &err), err);
      weft_checkpoint_free(checkpoint);
    }));
  }
  std::printf("%s, %.0f MB of parameters, one rank, medians of %d\n", name,
              static_cast<double>(bytes) / 1e6, rounds);
  for (const Row* row : {&digest, &written, &loaded}) row->print(static_cast<double>(bytes));
  weft_run_free(run);
  weft_plan_free(plan);
  weft_model_free(model);
  fs::remove_all(directory);
  return 0;
}
