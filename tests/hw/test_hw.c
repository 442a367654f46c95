/*
 * The catalogue: it loads, every figure has source and date, machines cost what the paper's tables
 * say, users' files hide records and are refused with a sentence that names the field, targets are
 * what the paper's nodes are, and the analytic estimate is Appendix E's.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "hw/estimate.h"
#include "hw/estimate_grid.h"
#include "hw/gpu_spec.h"
#include "pass/pass.h"
#include "support/fault.h"
#include "support/scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct gd_hw hw;

static int load_hw(void **state) {
  struct gd_error err = {0};
  scratch_setup(state);
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  if (gd_hw_load(&hw, &err) != GD_OK)
    fail_msg("%s", err.text);
  return 0;
}

static int drop_hw(void **state) {
  gd_hw_deinit(&hw);
  return scratch_teardown(state);
}

/* cmocka compares floats. */
static void expect_near(double value, double expected, double within) {
  if (!(fabs(value - expected) <= within))
    fail_msg("%.9g is not %.9g", value, expected);
}

static const struct gd_gpu *gpu_of(const char *name) {
  struct gd_error err = {0};
  const struct gd_gpu *gpu = NULL;
  if (gd_hw_gpu(&hw, name, &gpu, &err) != GD_OK)
    fail_msg("%s", err.text);
  return gpu;
}

static const struct gd_machine *machine_of(const char *name) {
  struct gd_error err = {0};
  const struct gd_machine *machine = NULL;
  if (gd_hw_machine(&hw, name, &machine, &err) != GD_OK)
    fail_msg("%s", err.text);
  return machine;
}

/* --- what is in it ------------------------------------------------------------------------- */

/* A peak is the data sheet's only where the record of that device has it. */
static void test_stated(void **state) {
  (void)state;
  const struct gd_gpu *gpu;
  assert_int_equal(gd_hw_gpu(&hw, "h200", &gpu, NULL), GD_OK);
  double flops = gpu->flops[GD_PEAK_BF16];
  assert_true(gd_hw_states_peak(&hw, "NVIDIA H200", GD_PEAK_BF16, flops));
  assert_true(gd_hw_states_peak(&hw, "h200", GD_PEAK_BF16, flops));
  assert_false(gd_hw_states_peak(&hw, "NVIDIA H200", GD_PEAK_TF32, flops));
  assert_false(gd_hw_states_peak(&hw, "NVIDIA H200", GD_PEAK_BF16, 1.01 * flops));
  assert_false(gd_hw_states_peak(&hw, "NVIDIA of another day", GD_PEAK_BF16, flops));
  assert_false(gd_hw_states_peak(&hw, "NVIDIA H200", GD_PEAK_BF16, 0));
}

static void test_names(void **state) {
  (void)state;
  static const struct {
    const char *asked, *name;
  } cases[] = {
      {"3090", "3090"},
      {"a6000", "a6000"},
      {"a100", "a100"},
      {"h100", "h100"},
      {"A100-80GB", "a100"},
      {"h100 sxm", "h100"},
      {"v100", "v100-16gb"},
      {"RTX_4090", "4090"},
      {"NVIDIA H200", "h200"},
      {"GeForce RTX 3090", "3090"},
      {"nvidia a6000", "a6000"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA A100-SXM4-80GB", "a100"},
      {"NVIDIA RTX 6000 Ada Generation", "6000-ada"},
  };
  static const char *const all[] = {"3090",
                                    "4090",
                                    "a6000",
                                    "6000-ada",
                                    "a40",
                                    "l40",
                                    "v100-16gb",
                                    "v100-32gb",
                                    "a100",
                                    "a100-40gb",
                                    "h100-pcie",
                                    "h100",
                                    "h200",
                                    "b200",
                                    "5090",
                                    "l40s",
                                    "a100-pcie",
                                    "a100-pcie-40gb",
                                    "h100-nvl",
                                    "3090-ti",
                                    "gh200",
                                    "t4",
                                    "a10",
                                    "a10g",
                                    "a30",
                                    "l4",
                                    "v100-pcie-16gb",
                                    "v100-pcie-32gb",
                                    "2080-ti",
                                    "titan-rtx",
                                    "quadro-rtx-8000",
                                    "quadro-rtx-6000",
                                    "3060",
                                    "3060-ti",
                                    "3070",
                                    "3080",
                                    "3080-ti",
                                    "4060",
                                    "4060-ti",
                                    "4070",
                                    "4070-ti",
                                    "4080",
                                    "5070-ti",
                                    "5080",
                                    "rtx-pro-6000",
                                    "a5000",
                                    "a4000"};
  for (size_t i = 0; i < COUNT(cases); i++)
    assert_string_equal(gpu_of(cases[i].asked)->name, cases[i].name);
  for (size_t i = 0; i < COUNT(all); i++)
    assert_string_equal(gpu_of(all[i])->name, all[i]);
  assert_int_equal(hw.n_gpus, COUNT(all));
  assert_int_equal(hw.n_networks, 12);
  for (int i = 0; i < hw.n_gpus; i++) /* an alias must not be ambiguous */
    for (int k = 0; k < hw.n_gpus; k++)
      assert_true(i == k || !strstr(hw.gpus[i].aliases, hw.gpus[k].title));
}

static void test_rates(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double half, paper;
  } cases[] = {{"3090", 71, 71},   {"4090", 165.2, 0},    {"a6000", 154.8, 154.8},
               {"a100", 312, 312}, {"h100-pcie", 756, 0}, {"h100", 989.4, 756}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    const struct gd_gpu *gpu = gpu_of(cases[i].name);
    expect_near(gpu->flops[GD_PEAK_FP16] / 1e12, cases[i].half, 1e-6);
    expect_near(gpu->flops[GD_PEAK_BF16] / 1e12, cases[i].half, 1e-6);
    expect_near(gpu->paper_flops / 1e12, cases[i].paper, 1e-6);
  }
  assert_true(gpu_of("v100")->flops[GD_PEAK_BF16] == 0);
  assert_int_equal(gpu_of("a6000")->compute_capability, 86);
  assert_int_equal(gpu_of("b200")->compute_capability, 100);
  assert_int_equal(gpu_of("h200")->memory_bytes, 150109880320); /* the driver's count */
}

static void check_cites(const char *name, const struct gd_cite *cites, int n, int least) {
  if (n < least)
    fail_msg("%s has %d figures with a source, not %d", name, n, least);
  for (int i = 0; i < n; i++)
    if (!cites[i].field[0] || strlen(cites[i].source) < 10 || strlen(cites[i].date) < 4)
      fail_msg("%s: %s has no source", name, cites[i].field);
}

/* The loader refuses a figure without one; here, that it did so for all of them. */
static void test_sources(void **state) {
  (void)state;
  for (int i = 0; i < hw.n_gpus; i++) {
    const struct gd_gpu *gpu = &hw.gpus[i];
    int figures = 8 + (gpu->paper_flops > 0) + (gpu->usd > 0);
    check_cites(gpu->name, gpu->cites, gpu->n_cites, figures);
    assert_true(gpu->usd <= 0 || gd_cite_of(gpu->cites, gpu->n_cites, "usd"));
    assert_non_null(gd_cite_of(gpu->cites, gpu->n_cites, "tflops"));
  }
  for (int i = 0; i < hw.n_machines; i++)
    check_cites(hw.machines[i].name, hw.machines[i].cites, hw.machines[i].n_cites,
                hw.machines[i].build ? 6 : 4);
  for (int i = 0; i < hw.n_networks; i++)
    check_cites(hw.networks[i].name, hw.networks[i].cites, hw.networks[i].n_cites, 2);
  for (int i = 0; i < hw.n_rents; i++)
    check_cites(hw.rents[i].provider, hw.rents[i].cites, hw.rents[i].n_cites, 1);
  for (int i = 0; i < hw.n_energies; i++)
    check_cites(hw.energies[i].name, hw.energies[i].cites, hw.energies[i].n_cites, 3);
}

/* Tables 5-7: sums of the parts, and what Section 4.1 says of them. */
static void test_costs(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double usd, stated, within;
  } cases[] = {
      {"desktop-1x-3090", 1020.41 + 1300, 0, 0},
      {"desktop-2x-3090", 1456.29 + 2 * 1300, 4000, 0.02},
      {"server-8x-3090", 10673 + 8 * 1300, 0, 0},
      {"server-4x-a6000", 7482 + 4 * 4800, 0, 0},
      {"server-4x-h100", 7482 + 4 * 30000, 130000, 0.02},
      {"server-8x-a100", 10673 + 8 * 19000, 160000, 0.02},
      {"desktop-2x-h100", 1456.29 + 2 * 30000, 60000, 0.03},
      {"server-4x-a100", 7482 + 4 * 19000, 85000, 0.02},
      {"server-8x-h100", 10673 + 8 * 30000, 250000, 0.01},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    const struct gd_machine *machine = machine_of(cases[i].name);
    expect_near(machine->usd, cases[i].usd, 0.005);
    assert_true(machine->in_paper);
    if (cases[i].stated > 0)
      expect_near(machine->usd / cases[i].stated, 1, cases[i].within);
  }
  assert_true(machine_of("server-8x-3090")->usd < 40000);
  assert_true(machine_of("server-8x-a100")->usd < 200000);
  assert_false(machine_of("server-8x-4090")->in_paper);
  assert_true(machine_of("server-8x-h200")->usd > 0);
  for (int i = 0; i < hw.n_machines; i++) /* a module of 1000 W is in no desktop */
    assert_string_not_equal(hw.machines[i].name, "desktop-1x-b200");
  int in_paper = 0;
  for (int i = 0; i < hw.n_machines; i++)
    in_paper += hw.machines[i].in_paper && hw.machines[i].usd > 0;
  assert_int_equal(in_paper, 16); /* four GPUs x 1, 2, 4, 8 */
}

static void test_rent(void **state) {
  (void)state;
  for (int i = 0; i < hw.n_rents; i++)
    if (strcmp(hw.rents[i].provider, "AWS p4d.24xlarge, reserved") == 0) {
      assert_string_equal(hw.rents[i].gpu, "a100");
      expect_near(hw.rents[i].usd_per_gpu_hour * 8, 14.75, 1e-9);
      return;
    }
  fail_msg("the rent that the paper speaks of is not there");
}

/* --- targets ------------------------------------------------------------------------------- */

static void test_targets(void **state) {
  (void)state;
  static const struct {
    const char *gpu;
    int count;
    const char *machine;
    enum gd_topology topology;
  } cases[] = {
      {"3090", 1, "paper-3090", GD_TOPOLOGY_BUS},
      {"a6000", 4, "paper-a6000", GD_TOPOLOGY_PAIRS},
      {"a100", 8, "paper-a100", GD_TOPOLOGY_SWITCH},
      {"h100", 2, "paper-h100", GD_TOPOLOGY_SWITCH},
      {"4090", 3, "server-4x-4090", GD_TOPOLOGY_BUS},
      {"b200", 8, "dgx-b200", GD_TOPOLOGY_SWITCH},
      {"a40", 8, NULL, GD_TOPOLOGY_PAIRS},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct gd_target target;
    struct gd_error err = {0};
    if (gd_hw_target(&hw, cases[i].gpu, cases[i].count, 0, NULL, NULL, &target, &err) != GD_OK)
      fail_msg("%s", err.text);
    if (cases[i].machine)
      assert_string_equal(target.machine->name, cases[i].machine);
    else
      assert_null(target.machine);
    assert_int_equal(target.topology, cases[i].topology);
    assert_int_equal(target.nodes, 1);
    assert_null(target.network);
    assert_int_equal(target.cpus, 4);
    assert_int_equal(target.host_memory_bytes, (int64_t)64 << 30);
    assert_int_equal(target.memory_bytes, gpu_of(cases[i].gpu)->memory_bytes - (1536 << 20));
  }
}

static void expect_target(const char *gpu, int count, int nodes, const char *machine,
                          const char *sentence) {
  struct gd_target target;
  struct gd_error err = {0};
  assert_int_equal(gd_hw_target(&hw, gpu, count, nodes, machine, NULL, &target, &err),
                   GD_BAD_INPUT);
  assert_string_equal(err.text, sentence);
}

static void test_nodes(void **state) {
  (void)state;
  struct gd_target target;
  struct gd_error err = {0};
  assert_int_equal(gd_hw_target(&hw, "h100", 32, 0, NULL, NULL, &target, &err), GD_OK);
  assert_int_equal(target.nodes, 4);
  assert_string_equal(target.network->name, "infiniband-ndr");
  assert_true(target.network_assumed);
  assert_int_equal(gd_hw_target(&hw, "4090", 8, 4, "desktop-2x-4090", "ethernet-10", &target, &err),
                   GD_OK);
  assert_false(target.network_assumed);
  assert_string_equal(target.network->name, "ethernet-10");
  expect_near(target.network->bytes_per_s, 1.25e9, 1);
  expect_target("a100", 12, 5, NULL,
                "12 GPUs cannot be spread evenly over 5 nodes; choose --count as a multiple of "
                "--nodes");
  expect_target("a100", 1, 1, "server-4x-h100",
                "machine server-4x-h100 holds h100, not a100; choose one that holds it");
  expect_target("4090", 8, 1, "desktop-2x-4090",
                "machine desktop-2x-4090 holds 2 GPUs, not the 8 that each of 1 would need; use "
                "more machines");
  expect_target("h1000", 1, 1, NULL,
                "unknown GPU \"h1000\"; did you mean h100, a100 or a4000? ('gpudays gpus' lists "
                "all; a path to a file of its own works too)");
}

/* As few machines as hold them, each the same number. */
static void test_node_counts(void **state) {
  (void)state;
  static const struct {
    const char *gpu, *machine;
    int count, nodes;
  } cases[] = {
      {"h100", NULL, 1, 1},   {"h100", NULL, 8, 1},       {"h100", NULL, 9, 3},
      {"h100", NULL, 12, 2},  {"h100", NULL, 16, 2},      {"h100", NULL, 24, 3},
      {"h100", NULL, 26, 13}, {"v100-32gb", NULL, 16, 2}, {"4090", "desktop-2x-4090", 8, 4},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct gd_target target;
    struct gd_error err = {0};
    assert_int_equal(
        gd_hw_target(&hw, cases[i].gpu, cases[i].count, 0, cases[i].machine, NULL, &target, &err),
        GD_OK);
    assert_int_equal(target.nodes, cases[i].nodes);
    assert_int_equal(target.network != NULL, target.nodes > 1);
  }
  struct gd_target target;
  struct gd_error err = {0};
  assert_int_equal(gd_hw_target(&hw, "h100", 8, 0, NULL, "infiniband-hdr", &target, &err), GD_OK);
  assert_null(target.network);
  assert_string_equal(target.network_unused->name, "infiniband-hdr");
  /* Another InfiniBand is in the places of the node's own cards; Ethernet is one card. */
  assert_int_equal(gd_hw_target(&hw, "a100", 16, 0, NULL, NULL, &target, &err), GD_OK);
  int own = target.network_cards;
  assert_true(own > 1);
  assert_int_equal(gd_hw_target(&hw, "a100", 16, 0, NULL, "infiniband-ndr", &target, &err), GD_OK);
  assert_int_equal(target.network_cards, own);
  assert_int_equal(gd_target_cards(&target), own);
  assert_int_equal(gd_hw_target(&hw, "a100", 16, 0, NULL, "ethernet-100", &target, &err), GD_OK);
  assert_int_equal(target.network_cards, 1);
  assert_true(target.cards_assumed);
  assert_int_equal(gd_hw_target(&hw, "a100", 16, 16, NULL, NULL, &target, &err), GD_OK);
  assert_int_equal(gd_target_cards(&target), own / target.node_gpus);
}

/* The plan for a GPU on paper is the plan of the CUDA backend. */
static void test_caps(void **state) {
  (void)state;
  struct gd_target target;
  struct gd_error err = {0};
  struct gd_caps ours, backend;
  struct gd_backend_options options = {0};
  assert_int_equal(gd_hw_target(&hw, "h100", 1, 0, NULL, NULL, &target, &err), GD_OK);
  memset(&ours, 0, sizeof ours);
  memset(&backend, 0, sizeof backend);
  gd_target_caps(&target, &ours);
  gd_backend_cuda.caps(&options, &backend);
  assert_memory_equal(&ours, &backend, sizeof ours);
  gd_caps_gpu(70, &ours);
  assert_false(ours.tf32 || ours.dtype[GD_DTYPE_BF16]);
  assert_true(ours.dtype[GD_DTYPE_F16]);
  gd_caps_gpu(61, &ours);
  assert_false(ours.dtype[GD_DTYPE_F16]);
}

/* What a device lacks it does in another precision, and what a GPU was asked for it does or not. */
static void test_precisions(void **state) {
  (void)state;
  static const struct {
    int capability; /* 0: a CPU */
    enum gd_precision recipe, runs;
  } cases[] = {
      {90, GD_PRECISION_FP16, GD_PRECISION_FP16}, {90, GD_PRECISION_BF16, GD_PRECISION_BF16},
      {75, GD_PRECISION_BF16, GD_PRECISION_FP16}, {75, GD_PRECISION_FP16, GD_PRECISION_FP16},
      {61, GD_PRECISION_BF16, GD_PRECISION_FP32}, {61, GD_PRECISION_FP16, GD_PRECISION_FP32},
      {61, GD_PRECISION_FP32, GD_PRECISION_FP32}, {0, GD_PRECISION_FP16, GD_PRECISION_BF16},
      {0, GD_PRECISION_BF16, GD_PRECISION_BF16},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct gd_caps caps;
    struct gd_model model = {.recipe = {.precision = cases[i].recipe}};
    struct gd_error err = {0};
    enum gd_precision precision;
    bool substituted;
    gd_backend_cpu.caps(&(struct gd_backend_options){0}, &caps);
    if (cases[i].capability)
      gd_caps_gpu(cases[i].capability, &caps);
    assert_int_equal(gd_setup_precision(&model, &caps, NULL, &precision, &substituted, &err),
                     GD_OK);
    assert_int_equal(precision, cases[i].runs);
    assert_int_equal(substituted, cases[i].runs != cases[i].recipe);
    bool refused = cases[i].capability && substituted;
    assert_int_equal(
        gd_setup_precision(&model, &caps, &cases[i].recipe, &precision, &substituted, &err),
        refused ? GD_UNSUPPORTED : GD_OK);
    assert_true(refused || (precision == cases[i].recipe && !substituted));
  }
}

/* --- users' files -------------------------------------------------------------------------- */

#define FIGURES                                                                       \
  "\"compute_capability\": 8.6, \"multiprocessors\": 80, \"memory_gib\": 24, "        \
  "\"memory_gb_per_s\": 900, \"tflops\": {\"fp32\": 30, \"tf32\": 30, \"fp16\": 60, " \
  "\"bf16\": 60}, \"host_link_gb_per_s\": 31.5, \"peer_link_gb_per_s\": 0, \"power_w\": 350"
#define HEAD \
  "\"kind\": \"gpu\", \"name\": \"mine\", \"title\": \"My GPU\", \"architecture\": \"ampere\", "
#define REST   "\"class\": \"desktop\", \"topology\": \"bus\", "
#define SOURCE ", \"source\": \"our own data sheet\", \"date\": \"2026-11\""

static enum gd_status add(const char *text, const char **what, struct gd_error *err) {
  *err = (struct gd_error){0};
  return gd_hw_add_text(&hw, "mine.json", text, (int64_t)strlen(text), what, err);
}

static void test_own(void **state) {
  (void)state;
  struct gd_error err;
  const char *what = NULL;
  int machines = hw.n_machines;
  const struct gd_gpu *before = gpu_of("a100");
  double bandwidth = before->memory_bytes_per_s;
  if (add("{" HEAD REST FIGURES SOURCE ", \"usd\": 500, \"aliases\": [\"ours\"]}", &what, &err))
    fail_msg("%s", err.text);
  assert_string_equal(what, "GPU mine");
  assert_string_equal(gpu_of("OURS")->name, "mine");
  expect_near(gpu_of("mine")->usd, 500, 1e-9);
  assert_int_equal(hw.n_machines, machines + hw.n_builds);
  expect_near(machine_of("desktop-1x-mine")->usd, 1520.41, 0.005);
  /* Its price, from another file; and what was found before is as it was. */
  if (add("{\"records\": [{\"kind\": \"price\", \"gpu\": \"ours\", \"usd\": 700" SOURCE "}]}",
          &what, &err))
    fail_msg("%s", err.text);
  assert_string_equal(what, "price of ours");
  expect_near(machine_of("desktop-1x-mine")->usd, 1720.41, 0.005);
  expect_near(before->memory_bytes_per_s, bandwidth, 0);
}

static void test_hides(void **state) {
  (void)state;
  struct gd_error err;
  const char *what;
  int gpus = hw.n_gpus, rents = hw.n_rents, networks = hw.n_networks;
  assert_int_equal(add("{\"records\": ["
                       "{\"kind\": \"network\", \"name\": \"ethernet-10\", \"title\": \"t\", "
                       "\"gbit_per_s\": 9, \"latency_us\": 5" SOURCE "},"
                       "{\"kind\": \"rent\", \"gpu\": \"A100-80GB\", \"provider\": \"Lambda, on "
                       "demand\", \"usd_per_gpu_hour\": 1" SOURCE "},"
                       "{\"kind\": \"energy\", \"name\": \"us\", \"title\": \"t\", "
                       "\"usd_per_kwh\": 0.3, \"pue\": 1.1, \"g_co2_per_kwh\": 20" SOURCE "},"
                       "{\"kind\": \"machine\", \"name\": \"server-8x-a100\", \"title\": \"t\", "
                       "\"gpu\": \"a100\", \"count\": 8, \"cpus\": 2, \"host_memory_gib\": 256, "
                       "\"topology\": \"switch\", \"power_w\": 9, \"usd\": 7" SOURCE "}]}",
                       &what, &err),
                   GD_OK);
  assert_int_equal(hw.n_gpus, gpus);
  assert_int_equal(hw.n_networks, networks);
  assert_int_equal(hw.n_rents, rents); /* also by an alias */
  expect_near(machine_of("server-8x-a100")->usd, 7, 0);
  const struct gd_energy *energy;
  assert_int_equal(gd_hw_energy(&hw, NULL, &energy, &err), GD_OK);
  expect_near(energy->usd_per_kwh, 0.3, 0);
  struct gd_target target;
  assert_int_equal(gd_hw_target(&hw, "a100", 8, 1, "server-8x-a100", NULL, &target, &err), GD_OK);
  assert_int_equal(target.cpus, 1);
  assert_int_equal(target.host_memory_bytes, (int64_t)32 << 30);
}

static void test_folder(void **state) {
  (void)state;
  struct gd_error err = {0};
  struct gd_hw own = {0};
  const struct gd_gpu *gpu;
  const struct gd_machine *machine;
  setenv("XDG_CONFIG_HOME", scratch_path(""), 1);
  scratch_write_text("gpudays/gpus/a100.json", "{" HEAD REST FIGURES SOURCE "}");
  scratch_write_text("gpudays/prices/p.json",
                     "{\"kind\": \"price\", \"gpu\": \"mine\", \"usd\": 77" SOURCE "}");
  if (gd_hw_load(&own, &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_int_equal(gd_hw_gpu(&own, "mine", &gpu, &err), GD_OK);
  expect_near(gpu->usd, 77, 0);
  gd_hw_deinit(&own);
  /* A broken file is not passed over: figures would silently be others. */
  scratch_write_text("gpudays/prices/p.json",
                     "{\"kind\": \"price\", \"gpu\": \"mini\", \"usd\": 77" SOURCE "}");
  assert_int_equal(gd_hw_load(&own, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "prices/p.json: gpu is \"mini\"; no record of that name"));
  /* By path. */
  err = (struct gd_error){0};
  assert_int_equal(gd_hw_gpu(&hw, scratch_path("gpudays/gpus/a100.json"), &gpu, &err), GD_OK);
  assert_string_equal(gpu->name, "mine");
  assert_int_equal(gd_hw_machine(&hw, scratch_path("gpudays/gpus/a100.json"), &machine, &err),
                   GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "a100.json: holds no record of kind machine"));
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *sentence;
  } cases[] = {
      {"{\"kind\": \"gnu\"}",
       "mine.json: kind is \"gnu\"; expected gpu, machine, build, network, price, rent or energy"},
      {"{\"name\": \"mine\"}", "mine.json: kind is missing; expected a string"},
      {"{" HEAD REST FIGURES SOURCE ", \"powerw\": 5}",
       "mine.json: \"powerw\" is not a field of a record of kind gpu; did you mean power_w?"},
      {"{" HEAD REST FIGURES "}",
       "mine.json: compute_capability has no source; add \"source\" and \"date\" to the record, or "
       "an entry of \"sources\" with it among its \"fields\""},
      {"{" HEAD REST FIGURES ", \"sources\": [{\"fields\": [\"power\"], \"source\": \"here\", "
       "\"date\": \"2024\"}]}",
       "mine.json: sources[0].fields is an array of 1; expected names of figures of this record"},
      {"{" HEAD REST FIGURES ", \"source\": \"here\", \"date\": \"May 2024\"}",
       "mine.json: date is \"May 2024\"; expected a date such as 2024, 2024-09 or 2024-09-21"},
      {"{" HEAD "\"class\": \"gaming\", \"topology\": \"bus\", " FIGURES SOURCE "}",
       "mine.json: class is \"gaming\"; expected desktop, workstation or datacenter"},
      {"{" HEAD "\"class\": \"desktop\", \"topology\": \"ring\", " FIGURES SOURCE "}",
       "mine.json: topology is \"ring\"; expected bus, pairs or switch"},
      {"{\"records\": [], \"kind\": \"gpu\"}",
       "mine.json: \"kind\" is not a field of a file of records; did you mean records?"},
      {"{\"records\": [{\"kind\": \"energy\", \"name\": \"x\", \"title\": \"t\", "
       "\"usd_per_kwh\": 0.1, \"pue\": 0.5, \"g_co2_per_kwh\": 1" SOURCE "}]}",
       "mine.json: records[0].pue is 0.5; expected a number from 1 to 10"},
      {"{\"kind\": \"machine\", \"name\": \"m\", \"title\": \"t\", \"gpu\": \"a101\", \"count\": "
       "8, "
       "\"cpus\": 2, \"host_memory_gib\": 256, \"topology\": \"switch\", \"power_w\": 9" SOURCE "}",
       "mine.json: gpu is \"a101\"; no record of that name exists ('gpudays gpus' lists those "
       "there "
       "are)"},
      {"{\"kind\": \"network\", \"name\": \"My net\", \"title\": \"t\", \"gbit_per_s\": 9, "
       "\"latency_us\": 5" SOURCE "}",
       "mine.json: name is \"My net\"; expected a name of small letters, digits, '.' and '-'"},
  };
  struct gd_error err;
  const char *what;
  for (size_t i = 0; i < COUNT(cases); i++) {
    int gpus = hw.n_gpus, machines = hw.n_machines, energies = hw.n_energies;
    assert_int_equal(add(cases[i].text, &what, &err), GD_BAD_INPUT);
    assert_string_equal(err.text, cases[i].sentence);
    assert_true(gpus == hw.n_gpus && machines == hw.n_machines && energies == hw.n_energies);
  }
}

static enum gd_status load_once(void *context, struct gd_error *err) {
  struct gd_hw own = {0};
  (void)context;
  enum gd_status status = gd_hw_load(&own, err);
  gd_hw_deinit(&own);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  assert_int_equal(fault_sweep(load_once, NULL), GD_OK);
}

/* --- Section 3.1 --------------------------------------------------------------------------- */

/* FLOPs and peaks of Appendix E, to its two digits; the A6000's is 154.8 in the paper's Figure 9,
   which the appendix rounds up. */
static void test_estimate(void **state) {
  (void)state;
  static const struct {
    const char *model;
    double flops;
  } models[] = {{"pythia-160m", 2.9e20}, {"pythia-410m", 8.2e20}, {"pythia-1b", 1.9e21},
                {"pythia-2.8b", 5.4e21}, {"pythia-6.9b", 1.3e22}, {"roberta", 4.8e21}};
  static const struct {
    const char *gpu;
    double peak;
  } gpus[] = {{"3090", 71e12}, {"a6000", 154.8e12}, {"a100", 312e12}, {"h100", 756e12}};
  for (size_t m = 0; m < COUNT(models); m++) {
    struct gd_model model;
    struct gd_error err = {0};
    double flops;
    if (gd_model_load(models[m].model, &model, &err) != GD_OK ||
        gd_estimate_flops(&model, model.recipe.precision, &flops, &err) != GD_OK)
      fail_msg("%s", err.text);
    for (size_t g = 0; g < COUNT(gpus); g++) {
      double peak = gd_estimate_peak(gpu_of(gpus[g].gpu), model.recipe.precision, GD_PEAKS_PAPER);
      double days = gd_estimate_days(flops, peak, 4);
      double stated = models[m].flops / (4 * gpus[g].peak) / 86400;
      if (fabs(days / stated - 1) > 0.03)
        fail_msg("%s on 4 x %s: %.2f days, Appendix E has %.2f", models[m].model, gpus[g].gpu, days,
                 stated);
    }
  }
}

/* Every cell is what its model, GPU and count would get alone. */
static void test_grid(void **state) {
  (void)state;
  struct gd_model models[2];
  struct gd_error err = {0};
  struct gd_arena arena = {0};
  struct gd_estimate_grid grid;
  struct gd_estimate_asked asked = {.hw = &hw, .models = models, .n_models = 2};
  assert_int_equal(gd_model_load("pythia-160m", &models[0], &err), GD_OK);
  assert_int_equal(gd_model_load("roberta", &models[1], &err), GD_OK);
  assert_int_equal(gd_estimate_grid_make(&asked, &arena, &grid, &err), GD_OK);
  assert_int_equal(grid.n_gpus, 4);
  assert_int_equal(grid.n_counts, 4);
  for (int m = 0; m < 2; m++)
    for (int g = 0; g < grid.n_gpus; g++)
      for (int c = 0; c < grid.n_counts; c++) {
        const struct gd_estimate *cell = gd_estimate_grid_cell(&grid, m, g, c);
        struct gd_estimate alone;
        double flops;
        assert_int_equal(gd_estimate_flops(&models[m], models[m].recipe.precision, &flops, &err),
                         GD_OK);
        assert_int_equal(gd_estimate_make(&models[m], flops, grid.gpus[g], 1 << c, NULL,
                                          GD_PEAKS_DATASHEET, &alone, &err),
                         GD_OK);
        assert_string_equal(cell->gpu->name, gd_estimate_gpus[g]);
        assert_int_equal(cell->count, 1 << c);
        expect_near(cell->days / alone.days, 1, 1e-12);
      }
  asked.gpus = "l40s,a100";
  asked.count = 3;
  assert_int_equal(gd_estimate_grid_make(&asked, &arena, &grid, &err), GD_OK);
  assert_int_equal(grid.n_gpus * grid.n_counts, 2);
  assert_int_equal(gd_estimate_grid_cell(&grid, 1, 1, 0)->count, 3);
  asked.peaks = GD_PEAKS_PAPER;
  assert_int_equal(gd_estimate_grid_make(&asked, &arena, &grid, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "no peak of l40s"));
  asked.gpus = "a100,";
  asked.peaks = GD_PEAKS_DATASHEET;
  assert_int_equal(gd_estimate_grid_make(&asked, &arena, &grid, &err), GD_BAD_INPUT);
  gd_arena_deinit(&arena);
}

static void test_peaks(void **state) {
  (void)state;
  const struct gd_gpu *a100 = gpu_of("a100"), *v100 = gpu_of("v100"), *l40 = gpu_of("l40");
  expect_near(gd_estimate_peak(a100, GD_PRECISION_FP32, GD_PEAKS_PAPER) / 1e12, 156, 1e-9);
  expect_near(gd_estimate_peak(a100, GD_PRECISION_FP32, GD_PEAKS_DATASHEET) / 1e12, 156, 1e-9);
  assert_int_equal(gd_estimate_kind(v100, GD_PRECISION_FP32), GD_PEAK_FP32);
  assert_int_equal(gd_estimate_kind(l40, GD_PRECISION_FP32), GD_PEAK_FP32);
  assert_true(isinf(
      gd_estimate_days(1e20, gd_estimate_peak(v100, GD_PRECISION_BF16, GD_PEAKS_DATASHEET), 1)));
  expect_near(gd_estimate_days(86400e12, 1e12, 2), 0.5, 1e-12);
}

/* GPUs as people write them. */
static void test_specs(void **state) {
  static const struct {
    const char *text, *name;
    int count;
  } fine[] = {
      {"3090", "3090", 0},     {"4x3090", "3090", 4},         {"4X a100", "a100", 4},
      {"4 x a100", "a100", 4}, {"8*h100", "h100", 8},         {"3090:4", "3090", 4},
      {" a100 ", "a100", 0},   {"RTX 4090", "RTX 4090", 0},   {"2x RTX 4090", "RTX 4090", 2},
      {"xpu:x", "xpu:x", 0},   {"1000000xt4", "t4", 1000000}, {"rtx6000", "rtx6000", 0}};
  static const char *const refused[] = {
      "", "4x", "0x3090", ":4", "3090:0", "a100,", "4x3090,", "1000001xt4", "3090:99999999999"};
  struct gd_arena arena = {0};
  struct gd_gpu_spec *specs;
  int count;
  (void)state;
  for (size_t i = 0; i < COUNT(fine); i++) {
    struct gd_error err = {0};
    if (gd_gpu_specs_parse(fine[i].text, &arena, &specs, &count, &err) != GD_OK)
      fail_msg("%s", err.text);
    assert_int_equal(count, 1);
    assert_string_equal(specs[0].name, fine[i].name);
    assert_int_equal(specs[0].count, fine[i].count);
  }
  for (size_t i = 0; i < COUNT(refused); i++) {
    struct gd_error err = {0};
    if (gd_gpu_specs_parse(refused[i], &arena, &specs, &count, &err) != GD_BAD_INPUT)
      fail_msg("\"%s\" is taken", refused[i]);
  }
  struct gd_error err = {0};
  assert_int_equal(gd_gpu_specs_parse("4x3090, a100,h100:8", &arena, &specs, &count, &err), GD_OK);
  assert_int_equal(count, 3);
  assert_string_equal(specs[1].name, "a100");
  assert_int_equal(specs[1].count, 0);
  assert_int_equal(specs[2].count, 8);
  gd_arena_deinit(&arena);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, load_hw, drop_hw)
  const struct CMUnitTest tests[] = {
      TEST(test_names),    TEST(test_specs),       TEST(test_stated), TEST(test_rates),
      TEST(test_sources),  TEST(test_costs),       TEST(test_rent),   TEST(test_targets),
      TEST(test_nodes),    TEST(test_node_counts), TEST(test_caps),   TEST(test_precisions),
      TEST(test_own),      TEST(test_hides),       TEST(test_folder), TEST(test_refusals),
      TEST(test_estimate), TEST(test_grid),        TEST(test_peaks),  cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
