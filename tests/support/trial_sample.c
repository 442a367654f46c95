/*
 * Made-up trials; see trial_sample.h.
 */
#include "support/trial_sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "store/record_int.h"

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Above 0, below 1, 53 bits. */
static double real(uint64_t *state) {
  return ((double)(next(state) >> 11) + 0.5) * 0x1p-53;
}

static void fill_samples(struct gd_samples *samples, uint64_t *state) {
  samples->count = 3 + (int)(next(state) % (GD_TRIAL_MAX_SAMPLES - 2));
  for (int i = 0; i < samples->count; i++)
    samples->ns[i] = 1000000 + (int64_t)(next(state) % 1000000000);
  gd_samples_summarise(samples);
}

void trial_sample_derive(struct gd_trial *trial, int64_t steps) {
  struct gd_samples *const all[] = {&trial->micro_step, &trial->last_micro_step, &trial->update};
  for (int i = 0; i < 3; i++)
    if (all[i]->count > 0)
      gd_samples_summarise(all[i]);
  double last = trial->last_micro_step.median_s, rest = last > 0 ? 1 : 0;
  trial->step_s = ((double)trial->accumulation - rest) * trial->micro_step.median_s + rest * last +
                  trial->update.median_s;
  trial->samples_per_s =
      (double)(trial->ranks * trial->accumulation * trial->micro_batch) / trial->step_s;
  trial->tokens_per_s = trial->samples_per_s * 2048;
  trial->exec_flops_per_step = 0.9 * trial->model_flops_per_step;
  trial->train_flops = (double)steps * trial->model_flops_per_step;
  trial->peak_flops = 2 * trial->model_flops_per_step / trial->step_s;
  trial->mfu = trial->model_flops_per_step / trial->step_s / trial->peak_flops;
  trial->hfu = trial->exec_flops_per_step / trial->step_s / trial->peak_flops;
  trial->days = (double)steps * trial->step_s / 86400;
  double a = ((double)trial->accumulation - rest) * trial->micro_step.half_width_s;
  double b = rest * trial->last_micro_step.half_width_s, c = trial->update.half_width_s;
  trial->step_half_width_s = sqrt(a * a + b * b + c * c);
  trial->days_low = trial->days * fmax(0, 1 - trial->step_half_width_s / trial->step_s);
  trial->days_high = trial->days * (1 + trial->step_half_width_s / trial->step_s);
}

/* Bytes by category that add up to the whole, within the limits. */
static void fill_bytes(struct gd_trial *trial, uint64_t *state) {
  trial->peak_bytes = trial->host_bytes = 0;
  for (int i = 0; i < GD_CATEGORY_COUNT; i++)
    trial->bytes[i] = (int64_t)(next(state) >> 24);
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++) {
    trial->host_parts[i] = (int64_t)(next(state) >> 24);
    trial->peak_bytes += trial->bytes[i];
    trial->host_bytes += trial->host_parts[i];
  }
  trial->live_bytes = trial->peak_bytes - trial->peak_bytes / 4;
  trial->device_limit_bytes = 2 * trial->peak_bytes;
  trial->host_limit_bytes = 2 * trial->host_bytes;
}

void trial_sample(struct gd_trial *trial, uint64_t seed) {
  static const char *const methods[] = {"naive", "free-lunch", "free-lunch+ckpt",
                                        "free-lunch+ckpt+zero2+offload", "free-lunch+fsdp3"};
  uint64_t state = seed * 77 + 1;
  *trial = (struct gd_trial){.status = GD_TRIAL_OK};
  for (int i = 0; i < gd_trial_field_count; i++) {
    const struct gd_field *field = &gd_trial_fields[i];
    void *at = (char *)trial + field->offset;
    switch (field->kind) {
    case GD_FIELD_TEXT: snprintf(at, field->size, "%s %" PRIu64, field->name, seed); break;
    case GD_FIELD_BOOL: *(bool *)at = next(&state) & 1; break;
    case GD_FIELD_INT: *(int *)at = 1 + (int)(next(&state) % 64); break;
    case GD_FIELD_INT64: *(int64_t *)at = (int64_t)(next(&state) >> 20) + 1; break;
    case GD_FIELD_REAL: *(double *)at = real(&state); break;
    case GD_FIELD_STATUS: break;
    case GD_FIELD_PRECISION: *(enum gd_precision *)at = (enum gd_precision)(seed % 3); break;
    case GD_FIELD_FAILURE: break; /* it is ok */
    }
  }
  snprintf(trial->method, sizeof trial->method, "%s", methods[seed % 5]);
  snprintf(trial->backend, sizeof trial->backend, "cpu");
  fill_samples(&trial->micro_step, &state);
  fill_samples(&trial->last_micro_step, &state);
  fill_samples(&trial->update, &state);
  trial->nodes = 1;
  trial->micro_batch = 1 + (int64_t)(next(&state) % 64);
  trial->accumulation = 1 + (int64_t)(next(&state) % 64);
  trial->remainder = 0;
  trial->busy_share = 0.25;
  trial_sample_derive(trial, (int64_t)(1 + next(&state) % 100000));
  fill_bytes(trial, &state);
  trial->n_profile = (uint32_t)(seed % (GD_PROFILE_ROWS + 1));
  for (uint32_t i = 0; i < trial->n_profile; i++)
    trial->profile[i] =
        (struct gd_profile_row){.kind = (enum gd_op_kind)(next(&state) % GD_OP_COUNT),
                                .program = (enum gd_program)(next(&state) % GD_PROGRAM_COUNT),
                                .async = next(&state) & 1,
                                .count = (uint32_t)next(&state),
                                .seconds = real(&state)};
}

void trial_sample_key(struct gd_store_key *key, uint64_t seed) {
  *key = (struct gd_store_key){0};
  snprintf(key->text, sizeof key->text, "table;key=%032" PRIx64, seed);
  gd_hash_hex(key->hash, key->text);
}
