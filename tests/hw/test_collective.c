/*
 * The time of collectives: bus bandwidths that nccl-tests measured, its formulas, the limits of one
 * GPU and of endless bandwidth, more bytes and more ranks never faster, and scales to 4,096 GPUs.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hw/collective.h"

static struct gd_hw hw;

static struct gd_fabric fabric_of(const char *gpu, int count, int nodes, const char *network) {
  struct gd_target target;
  struct gd_fabric fabric;
  struct gd_error err = {0};
  if (gd_hw_target(&hw, gpu, count, nodes, NULL, network, &target, &err) != GD_OK)
    fail_msg("%s", err.text);
  gd_fabric_of(&target, &fabric);
  return fabric;
}

/* A GPU of the catalogue whose cards are joined in another way. */
static struct gd_fabric joined(const char *gpu, int count, enum gd_topology topology) {
  struct gd_target target;
  struct gd_fabric fabric;
  assert_int_equal(gd_hw_target(&hw, gpu, count, 1, NULL, NULL, &target, NULL), GD_OK);
  target.topology = topology;
  gd_fabric_of(&target, &fabric);
  return fabric;
}

static void within(const char *what, double value, double published, double error) {
  if (!(fabs(value / published - 1) <= error))
    fail_msg("%s: %.4g, published %.4g", what, value, published);
}

static double bus(const struct gd_fabric *fabric, enum gd_collective kind, double bytes) {
  return gd_collective_time(fabric, kind, bytes).bus_bytes_per_s;
}

/* Large messages. The sources are in collective.c. */
static void bus_bandwidths_are_those_of_nccl_tests(void **state) {
  (void)state;
  struct gd_fabric a100 = fabric_of("a100", 8, 1, NULL);
  within("8 x A100", bus(&a100, GD_COLLECTIVE_ALL_REDUCE, 4e9), 232.5e9, 0.05);
  struct gd_fabric h100 = fabric_of("h100", 8, 1, NULL);
  within("8 x H100, ring", bus(&h100, GD_COLLECTIVE_ALL_GATHER, 4e9), 367e9, 0.05);
  within("8 x H100, switch", bus(&h100, GD_COLLECTIVE_ALL_REDUCE, 4e9), 480e9, 0.05);
  assert_string_equal(gd_collective_time(&h100, GD_COLLECTIVE_ALL_REDUCE, 4e9).algorithm, "switch");
  struct gd_fabric four = fabric_of("h100", 4, 1, NULL);
  within("4 x H100", bus(&four, GD_COLLECTIVE_ALL_REDUCE, 4e9), 370e9, 0.15);
  /* Nodes of eight with four cards of 200 Gb/s. */
  struct gd_fabric nodes = fabric_of("a100", 24, 3, "4xinfiniband-hdr");
  within("3 x 8 x A100", bus(&nodes, GD_COLLECTIVE_ALL_REDUCE, 4e9), 90e9, 0.1);
  /* Pairs on NVLink, then through PCIe; cards without peer access. */
  struct gd_fabric pair = joined("a100-pcie", 2, GD_TOPOLOGY_PAIRS);
  within("a pair", bus(&pair, GD_COLLECTIVE_ALL_REDUCE, 4e9), 208e9, 0.2);
  struct gd_fabric pairs = joined("a100-pcie", 4, GD_TOPOLOGY_PAIRS);
  within("pairs", bus(&pairs, GD_COLLECTIVE_ALL_REDUCE, 4e9), 20e9, 0.05);
  struct gd_fabric bus4 = fabric_of("5090", 4, 1, NULL);
  within("4 x 5090", bus(&bus4, GD_COLLECTIVE_ALL_REDUCE, 4e9), 35e9, 0.15);
  struct gd_fabric bus8 = fabric_of("5090", 8, 1, NULL);
  within("8 x 5090", bus(&bus8, GD_COLLECTIVE_ALL_REDUCE, 4e9), 28e9, 0.15);
}

/* Small messages: tens of microseconds in a node, a hundred between two. */
static void small_messages_pay_the_start(void **state) {
  (void)state;
  struct gd_fabric two = fabric_of("a100-40gb", 2, 1, NULL), nodes = fabric_of("a100", 16, 2, NULL);
  within("2 x A100, 32 bytes", gd_collective_seconds(&two, GD_COLLECTIVE_ALL_REDUCE, 32, 1),
         10.1e-6, 0.3); /* github.com/NVIDIA/nccl/issues/583 */
  double between = gd_collective_seconds(&nodes, GD_COLLECTIVE_ALL_REDUCE, 8, 1);
  assert_true(between > 20e-6 && between < 100e-6);
  assert_string_equal(gd_collective_time(&nodes, GD_COLLECTIVE_ALL_REDUCE, 8).protocol, "LL");
  assert_string_equal(gd_collective_time(&nodes, GD_COLLECTIVE_ALL_REDUCE, 4e9).protocol, "Simple");
}

static void limits(void **state) {
  (void)state;
  for (int kind = 0; kind < GD_COLLECTIVE_COUNT; kind++) {
    struct gd_fabric one = fabric_of("a100", 1, 1, NULL), many = fabric_of("a100", 64, 8, NULL);
    assert_true(gd_collective_seconds(&one, (enum gd_collective)kind, 1e9, 1) == 0);
    assert_true(gd_collective_seconds(&many, (enum gd_collective)kind, 0, 1) == 0);
    many.inside_bytes_per_s = many.between_bytes_per_s = HUGE_VAL;
    struct gd_collective_time time = gd_collective_time(&many, (enum gd_collective)kind, 1e6);
    if (time.protocol[0] != 'L') /* LL has a limit of its own */
      within("latency", time.seconds, time.latency_s, 1e-12);
    assert_true(time.seconds > 0 && time.seconds < 1e-3);
  }
}

/* The formulas of nccl-tests: a bus bandwidth does not depend on the number of ranks. */
static void formulas(void **state) {
  (void)state;
  struct gd_fabric f = fabric_of("a100", 8, 1, NULL);
  struct gd_collective_time gather = gd_collective_time(&f, GD_COLLECTIVE_ALL_GATHER, 1e9);
  struct gd_collective_time reduce = gd_collective_time(&f, GD_COLLECTIVE_ALL_REDUCE, 1e9);
  within("all-gather", gather.bus_bytes_per_s, 7.0 / 8 * 1e9 / gather.seconds, 1e-12);
  within("all-reduce", reduce.bus_bytes_per_s, 2 * 7.0 / 8 * 1e9 / reduce.seconds, 1e-12);
  within("two halves", reduce.seconds, 2 * gather.seconds, 0.01);
  for (int n = 2; n <= 8; n++) {
    f.ranks = n;
    within("any ranks", bus(&f, GD_COLLECTIVE_REDUCE_SCATTER, 8e9), f.inside_bytes_per_s, 0.01);
  }
}

static void more_is_never_faster(void **state) {
  static const char *const gpus[] = {"a100", "h100", "4090", "a6000"};
  (void)state;
  for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++)
    for (int kind = 0; kind < GD_COLLECTIVE_COUNT; kind++) {
      double last_ranks = 0;
      for (int n = 8; n <= 4096; n *= 2) {
        struct gd_fabric f = fabric_of(gpus[g], n, n / 8, n > 8 ? "8xinfiniband-hdr" : NULL);
        double last = 0;
        for (int power = 3; power < 37; power += 2) {
          double bytes = ldexp(1, power);
          double seconds = gd_collective_seconds(&f, (enum gd_collective)kind, bytes, 1);
          if (!(seconds >= last && isfinite(seconds)))
            fail_msg("%s, %d ranks, %g bytes: %g after %g", gpus[g], n, bytes, seconds, last);
          last = seconds;
        }
        double seconds = gd_collective_seconds(&f, (enum gd_collective)kind, 1e8, 1);
        if (!(seconds >= last_ranks))
          fail_msg("%s, %d ranks: %g after %g", gpus[g], n, seconds, last_ranks);
        last_ranks = seconds;
      }
    }
}

/* Many small tensors pay their start apart, and rings start as often as there are ranks. */
static void buckets_and_ranks(void **state) {
  (void)state;
  struct gd_fabric f = fabric_of("a100", 512, 64, NULL);
  double one = gd_collective_seconds(&f, GD_COLLECTIVE_ALL_GATHER, 1e8, 1);
  double many = gd_collective_seconds(&f, GD_COLLECTIVE_ALL_GATHER, 1e8, 100);
  assert_true(many > 10 * one);
  assert_true(many < 100 * one);
  struct gd_fabric larger = fabric_of("a100", 4096, 512, NULL);
  double latency = gd_collective_time(&f, GD_COLLECTIVE_ALL_GATHER, 1e6).latency_s;
  within("8 times the ranks",
         gd_collective_time(&larger, GD_COLLECTIVE_ALL_GATHER, 1e6).latency_s / latency, 8, 0.1);
  /* A tree's grows with the logarithm. */
  latency = gd_collective_time(&f, GD_COLLECTIVE_ALL_REDUCE, 1e4).latency_s;
  assert_string_equal(gd_collective_time(&f, GD_COLLECTIVE_ALL_REDUCE, 1e4).algorithm, "tree");
  assert_true(gd_collective_time(&larger, GD_COLLECTIVE_ALL_REDUCE, 1e4).latency_s < 2 * latency);
}

static void cards_and_groups(void **state) {
  struct gd_target target;
  struct gd_fabric f, group;
  struct gd_error err = {0};
  char text[GD_FABRIC_TEXT];
  (void)state;
  f = fabric_of("a100", 16, 2, NULL);
  assert_int_equal(f.cards, 8);
  within("8 x 200 Gb/s", f.between_bytes_per_s, 180e9, 1e-9);
  assert_string_equal(gd_fabric_say(&f, text),
                      "NVLink 240 GB/s a GPU, 8 network cards a node, 180 GB/s together");
  f = fabric_of("h100", 16, 2, NULL);
  within("8 x 400 Gb/s", f.between_bytes_per_s, 8 * 45e9, 1e-9);
  f = fabric_of("a100", 8, 2, NULL); /* half of each node, so half of its cards */
  assert_int_equal(f.cards, 4);
  f = fabric_of("a100", 16, 2, "ethernet-100");
  assert_int_equal(f.cards, 1);
  f = fabric_of("a100", 16, 2, "2xethernet-100");
  assert_int_equal(f.cards, 2);
  assert_int_equal(gd_hw_target(&hw, "a100", 16, 2, NULL, "0xinfiniband-hdr", &target, &err),
                   GD_BAD_INPUT);
  f = fabric_of("a100", 64, 8, NULL);
  gd_fabric_group(&f, 8, &group);
  assert_int_equal(group.nodes, 1);
  struct gd_fabric alone = fabric_of("a100", 8, 1, NULL);
  within("a node of it", gd_collective_seconds(&group, GD_COLLECTIVE_ALL_GATHER, 1e8, 1),
         gd_collective_seconds(&alone, GD_COLLECTIVE_ALL_GATHER, 1e8, 1), 1e-12);
  gd_fabric_group(&f, 20, &group);
  assert_int_equal(group.nodes, 3);
}

static void the_slowest_of_many(void **state) {
  (void)state;
  assert_true(gd_slowest_of(1) == 1);
  /* The expected largest of 2, 8 and 100 normal values: 0.564, 1.424 and 2.508 deviations. */
  within("2", (gd_slowest_of(2) - 1) / (0.08 / 5.4), 0.564, 0.08);
  within("8", (gd_slowest_of(8) - 1) / (0.08 / 5.4), 1.424, 0.02);
  within("100", (gd_slowest_of(100) - 1) / (0.08 / 5.4), 2.508, 0.02);
  assert_true(gd_slowest_of(4096) > gd_slowest_of(512) && gd_slowest_of(4096) < 1.1);
}

static int open_hw(void **state) {
  (void)state;
  return gd_hw_load(&hw, NULL) == GD_OK ? 0 : -1;
}

static int close_hw(void **state) {
  (void)state;
  gd_hw_deinit(&hw);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bus_bandwidths_are_those_of_nccl_tests),
      cmocka_unit_test(small_messages_pay_the_start),
      cmocka_unit_test(limits),
      cmocka_unit_test(formulas),
      cmocka_unit_test(more_is_never_faster),
      cmocka_unit_test(buckets_and_ranks),
      cmocka_unit_test(cards_and_groups),
      cmocka_unit_test(the_slowest_of_many),
  };
  return cmocka_run_group_tests(tests, open_hw, close_hw);
}
