/*
 * What --json prints is what `gpudays schema --json` says, field by field, with the types that it
 * says; and each field that it says is printed by some command here, so that neither can claim
 * what the other lacks. The commands run in $TMPDIR, which is empty.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cmocka needs these before its own header. */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Files that the commands read; $S is the source, $G the program. A line that fails ends the test.
 */
static const char prepare[] =
    "set -e; G=$GPUDAYS; S=$GD_SOURCE_DIR\n"
    "mkdir -p gpudays/models; echo '{' >gpudays/models/broken.json\n"
    "mkdir -p a b; cp $S/examples/tiny/config.json a; cp $S/examples/tiny/config.json b\n"
    "for i in $(seq 300); do echo 'The quick brown fox jumps over the lazy dog.'; done >text\n"
    "printf '\\1\\0%.0s' $(seq 400) >ids\n"
    "$G tokens text --tokenizer gpudays-4k -o tokens >/dev/null\n"
    "$G train a --data tokens --tokenizer gpudays-4k --seq 16 --batch 1 --steps 2 --warmup 0 "
    "--threads 1 -o runs/a >/dev/null\n"
    "$G results load $S/tests/cli/results.jsonl >/dev/null; $G results load h200 >/dev/null\n"
    "$G survey --synthetic 20 -o answers.csv -q >/dev/null\n"
    "sed 's/^yes/maybe/' answers.csv >refused.csv\n"
    "$G accuracy add --template | sed 's/,,,,,tokens/,,,,9e4,tokens/' >rates.csv\n";

#define POINT "--seq 16 --batch 3 --steps 10 --micro-batch 2 --threads 1 --sample-seconds 0.02 "

#define WHY_LOG(name) "why gpt2 --gpu a100-40gb --log $GD_SOURCE_DIR/tests/cli/why/" name ".log"

static const struct {
  const char *object; /* of $defs */
  const char *command;
  int code;
} runs[] = {
    {"models", "models", 0},
    {"model", "models pythia-1b", 0},
    {"model", "models vit", 0},
    {"configuration", "models --check pythia-1b", 0},
    {"configuration", "models --check $GD_SOURCE_DIR/tests/model/unknown/gptj.json", 1},
    {"catalogue", "gpus", 0},
    {"gpu", "gpus h200", 0},
    {"check", "gpus --check $GD_SOURCE_DIR/data/gpus/a100.json", 0},
    {"estimates", "estimate", 0},
    {"estimates", "estimate pythia-1b --gpu a100 --count 4", 0},
    {"estimates", "estimate a --gpu a100 --count 4", 0}, /* its recipe is assumed */
    {"estimates", "estimate --params 1.3B", 0},
    {"estimates", "estimate $GD_SOURCE_DIR/tests/model/unknown/mixtral.json --gpu a100", 0},
    {"trials", "plan pythia-160m --device-memory 8GiB --threads 1", 0},
    {"trials", "plan pythia-160m --gpu 4x3090 --methods all", 0},
    {"trials", "plan pythia-1b pythia-160m --gpu h100,a100 --count 1,8", 0},
    {"trials", "plan pythia-1b --gpu 8xh100 --stack pytorch", 0},
    {"trials", "plan pythia-160m --stack paper --gpu a100", 0},
    {"trials", "plan vit --gpu a100", 0},
    {"trials", "plan pythia-6.9b --gpu 3090", 1},
    {"trials", "plan a --gpu a100", 0},
    {"trials", "plan pythia-160m --gpu 4x3090 --days 30 --wall-limit 24h --queue-wait 6h", 0},
    {"trials", "plan pythia-160m --gpu 4x3090 --days 3 --wall-limit 24h --queue-wait 6h", 1},
    {"sizes", "plan --params 1.3B --tokens 26B --gpu 4xa100", 0},
    {"sizes", "plan --params 1.3B", 0},
    {"sizes", "plan $GD_SOURCE_DIR/tests/model/unknown/mixtral.json --gpu 8xh100", 0},
    {"why", "why gpt2 --gpu 4x3090 --tokens-per-s 60000", 0},
    {"why", WHY_LOG("attention_scores"), 0},
    {"why", WHY_LOG("good"), 0},
    {"why", "why gpt2 --log $GD_SOURCE_DIR/tests/cli/why/good.log",
     0}, /* on no GPU that is named */
    {"trials", "bench a b " POINT "--methods free-lunch,naive", 0},
    {"trials", "bench a " POINT "--methods naive --profile --no-store", 0},
    {"trials", "bench pythia-160m --simulate --gpu a100 --methods free-lunch,naive", 0},
    {"trials", "results", 0},
    {"trials", "results --model pythia-1b", 0},
    {"trials", "results --pending", 0},
    {"total", "results --total", 0},
    {"saved", "results save saved.jsonl", 0},
    {"loaded", "results load saved.jsonl", 0},
    {"trials", "best pythia-14m", 0},
    {"export", "export pythia-14m --format hf", 0},
    {"export", "export pythia-160m --gpu 4x3090 --format train.py", 0},
    {"removed", "results remove --model pythia-14m", 2},
    {"removed", "results remove --model pythia-14m --yes", 0},
    {"cost", "cost pythia-1b", 0},
    {"cost", "cost pythia-1b --times paper --budget 5000 --days 30 --text", 0},
    {"cost", "cost pythia-160m --budget 4000", 0},
    {"cost", "cost --budget 40000 --days 30 --gpu h200", 0}, /* of all machines: test_cost.sh */
    {"cost", "cost --params 1.3B --tokens 26B", 0},
    {"cost", "cost a", 0},
    {"cost", "cost pythia-1b --days 1", 1},   /* nothing is fast enough */
    {"cost", "cost pythia-1b --days 2.2", 1}, /* something may be: at_risk */
    {"cost", "cost pythia-1b --wall-limit 24h --queue-wait 6h", 0},
    {"published", "published gpt2 --limit 20", 0},
    {"tokens", "tokens text --tokenizer gpudays-4k -o again", 0},
    {"decoded", "tokens --decode tokens --tokenizer gpudays-4k --count 9", 0},
    {"trained", "train a --data ids --seq 16 --batch 1 --steps 9 --warmup 0 --threads 1 -o runs/b",
     0},
    {"dry_run", "train runs/a --dry-run --threads 1", 0},
    {"sample", "sample runs/a --prompt The --length 1 --threads 1", 0},
    {"evaluated", "evaluate runs/a --data tokens --samples 1 --threads 1", 0},
    {"runs", "runs", 0},
    {"run", "watch runs/a --once", 0},
    {"survey", "survey --questions", 0},
    {"survey", "survey --synthetic 9", 0},
    {"survey", "survey answers.csv", 0},
    {"survey", "survey refused.csv", 2},
    {"verify", "verify $GD_SOURCE_DIR/tests/reference/neox-tied --threads 1", 0},
    {"report", "report -o out --no-predictions", 0},
    {"fit", "fit", 0},
    {"accuracy", "accuracy", 0},
    {"added", "accuracy add rates.csv", 0},
    {"calibrations", "calibrate list", 0},
    {"doctor", "doctor --threads 1", 0},
    {"completion", "completion bash", 0},
    {"help", "help", 0},
    {"versions", "--version", 0},
};
/* Takes a minute: with GD_TEST_ALL. */
static const char calibration[] = "calibrate --threads 1 --time-limit 60s --store none.db";

/* --- holding a value against the schema ---------------------------------------------------- */

struct holding {
  json_t *defs;
  json_t *seen; /* "object.field" of all that was found */
  const char *command;
  json_t *told; /* paths that were complained of */
  int wrong;
};

/* Once for each path. */
static void complain(struct holding *h, const char *path, const char *what) {
  h->wrong++;
  if (!json_object_get(h->told, path))
    fprintf(stderr, "gpudays %s --json: %s %s\n", h->command, path, what);
  json_object_set_new(h->told, path, json_true());
}

static bool has_type(const json_t *value, const char *type) {
  return strcmp(type, "string") == 0    ? json_is_string(value)
         : strcmp(type, "integer") == 0 ? json_is_integer(value)
         : strcmp(type, "number") == 0  ? json_is_number(value)
         : strcmp(type, "boolean") == 0 ? json_is_boolean(value)
         : strcmp(type, "null") == 0    ? json_is_null(value)
         : strcmp(type, "array") == 0   ? json_is_array(value)
                                        : json_is_object(value);
}

static void hold(struct holding *h, const json_t *schema, const json_t *value, const char *path);

static void hold_object(struct holding *h, const char *name, const json_t *value,
                        const char *path) {
  const json_t *def = json_object_get(h->defs, name), *inner;
  const json_t *properties = json_object_get(def, "properties"),
               *required = json_object_get(def, "required");
  const char *key;
  char inside[512];
  size_t i;
  if (!def || !json_is_object(value)) {
    complain(h, path, def ? "is no object" : "has no schema");
    return;
  }
  json_object_foreach((json_t *)(uintptr_t)value, key, inner) {
    const json_t *property = json_object_get(properties, key);
    snprintf(inside, sizeof inside, "%s.%s", path, key);
    if (!property)
      complain(h, inside, "is not in the schema");
    else
      hold(h, property, inner, inside);
    snprintf(inside, sizeof inside, "%s.%s", name, key);
    json_object_set_new(h->seen, inside, json_true());
  }
  json_array_foreach(required, i, inner) {
    snprintf(inside, sizeof inside, "%s.%s", path, json_string_value(inner));
    if (!json_object_get(value, json_string_value(inner)))
      complain(h, inside, "is always there, says the schema");
  }
}

static void hold(struct holding *h, const json_t *schema, const json_t *value, const char *path) {
  static const char defs[] = "#/$defs/";
  const json_t *any = json_object_get(schema, "anyOf"), *inner,
               *values = json_object_get(schema, "additionalProperties");
  const char *reference = json_string_value(json_object_get(schema, "$ref")),
             *type = json_string_value(json_object_get(schema, "type")), *key;
  size_t i;
  if (any) { /* something, or null or a text */
    type = json_string_value(json_object_get(json_array_get(any, 1), "type"));
    if (!type || !has_type(value, type))
      hold(h, json_array_get(any, 0), value, path);
  } else if (reference) {
    assert_int_equal(strncmp(reference, defs, sizeof defs - 1), 0);
    hold_object(h, reference + sizeof defs - 1, value, path);
  } else if (!type || !has_type(value, type)) {
    char text[128];
    snprintf(text, sizeof text, "is not of type %s%s", type ? type : "?",
             json_is_null(value) ? " but null" : "");
    complain(h, path, text);
  } else if (json_is_array(value)) {
    json_array_foreach(value, i, inner) hold(h, json_object_get(schema, "items"), inner, path);
  } else if (json_is_object(value)) {
    json_object_foreach((json_t *)(uintptr_t)value, key, inner) hold(h, values, inner, path);
  }
}

/* --- running ------------------------------------------------------------------------------- */

static json_t *output_of(const char *command, int code) {
  char line[1024];
  json_error_t error;
  snprintf(line, sizeof line, "\"$GPUDAYS\" %s --json >out.json 2>err.txt </dev/null", command);
  int status = system(line);
  if (status != code << 8) {
    fprintf(stderr, "gpudays %s: status %d, not %d\n", command, status >> 8, code);
    (void)!system("cat err.txt >&2");
  }
  assert_int_equal(status, code << 8);
  json_t *json = json_load_file("out.json", 0, &error);
  if (!json)
    fprintf(stderr, "gpudays %s --json: %s\n", command, error.text);
  assert_non_null(json);
  return json;
}

static void run_one(struct holding *h, const char *object, const char *command, int code) {
  json_t *json = output_of(command, code);
  h->command = command;
  hold_object(h, object, json, object);
  json_decref(json);
}

/* What the schema says and nothing has printed. */
static void find_unseen(struct holding *h, bool calibrated) {
  const char *object, *field;
  json_t *def, *property;
  char path[256];
  json_object_foreach(h->defs, object, def) {
    if (strcmp(object, "calibration") == 0 && !calibrated)
      continue;
    json_object_foreach(json_object_get(def, "properties"), field, property) {
      snprintf(path, sizeof path, "%s.%s", object, field);
      if (json_object_get(h->seen, path))
        continue;
      h->wrong++;
      fprintf(stderr, "gpudays schema: %s is printed by none of the commands\n", path);
    }
  }
}

static void test_schema(void **state) {
  (void)state;
  const char *folder = getenv("TMPDIR"), *program = getenv("GPUDAYS");
  if (!folder || !program) {
    print_message("skipped: no TMPDIR or no program\n");
    skip();
  }
  assert_int_equal(chdir(folder), 0);
  assert_int_equal(setenv("XDG_DATA_HOME", folder, 1), 0);
  assert_int_equal(setenv("XDG_CONFIG_HOME", folder, 1), 0);
  assert_int_equal(unsetenv("GPUDAYS_DB"), 0);
  assert_int_equal(system(prepare), 0);
  json_t *schema = output_of("schema", 0);
  struct holding h = {
      .defs = json_object_get(schema, "$defs"), .seen = json_object(), .told = json_object()};
  assert_string_equal(json_string_value(json_object_get(schema, "$schema")),
                      "https://json-schema.org/draft/2020-12/schema");
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
    run_one(&h, runs[i].object, runs[i].command, runs[i].code);
  const bool calibrated = getenv("GD_TEST_ALL") != NULL;
  if (calibrated)
    run_one(&h, "calibration", calibration, 0);
  find_unseen(&h, calibrated);
  assert_int_equal(h.wrong, 0);
  json_decref(h.seen);
  json_decref(h.told);
  json_decref(schema);
}

/* The schema of one command is that part of the whole which it needs. */
static void test_parts(void **state) {
  (void)state;
  if (!getenv("TMPDIR") || !getenv("GPUDAYS"))
    skip();
  assert_int_equal(chdir(getenv("TMPDIR")), 0);
  json_t *whole = output_of("schema", 0), *part = output_of("schema plan", 0), *def;
  const char *name;
  json_object_foreach(json_object_get(part, "$defs"), name, def)
      assert_true(json_equal(def, json_object_get(json_object_get(whole, "$defs"), name)));
  assert_non_null(json_object_get(json_object_get(part, "$defs"), "remedy"));
  assert_null(json_object_get(json_object_get(part, "$defs"), "survey"));
  json_decref(whole);
  json_decref(part);
  assert_int_equal(system("\"$GPUDAYS\" schema nonsense 2>err.txt"), 2 << 8);
  assert_int_equal(system("grep -q 'unknown command' err.txt"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schema),
      cmocka_unit_test(test_parts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
