/*
 * The compute paragraph of a grant proposal: the advice in sentences that can be pasted, and below
 * them every assumption that the numbers rest on, with its source.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "money/money.h"
#include "pass/method.h"

enum { COLUMNS = 80, TEXT = 64 };

/* --- numbers ------------------------------------------------------------------------------- */

/* Three digits, thousands separated: "8.73", "109", "21,073". */
static const char *number(char text[TEXT], double value) {
  if (value < 999.5)
    snprintf(text, TEXT, "%.3g", value);
  else
    gd_format_count(text, TEXT, (int64_t)llround(value));
  return text;
}

/* "$346", "$21,073". */
static const char *dollars(char text[TEXT], double usd) {
  char digits[TEXT];
  if (usd < 10)
    snprintf(text, TEXT, "$%.2f", usd);
  else
    snprintf(text, TEXT, "$%.40s", gd_format_count(digits, sizeof digits, (int64_t)llround(usd)));
  return text;
}

/* "300 billion". */
static const char *many(char text[TEXT], double value) {
  static const struct {
    double scale;
    const char *name;
  } names[] = {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (value >= 0.9995 * names[i].scale) {
      snprintf(text, TEXT, "%.3g %s", value / names[i].scale, names[i].name);
      return text;
    }
  return number(text, value);
}

/* "1.9 x 10^21". */
static const char *power(char text[TEXT], double value) {
  int exponent = value > 0 ? (int)floor(log10(value)) : 0;
  snprintf(text, TEXT, "%.1f x 10^%d", value / pow(10, exponent), exponent);
  return text;
}

static const char *co2(char text[TEXT], double kg) {
  if (kg >= 1000)
    snprintf(text, TEXT, "%.2g tonnes", kg / 1000);
  else
    snprintf(text, TEXT, "%.3g kg", kg);
  return text;
}

static const char *plural(double count) {
  return fabs(count - 1) < 1e-9 ? "" : "s";
}

/* --- lines --------------------------------------------------------------------------------- */

/* Text wrapped at blanks; lines after the first begin with as many blanks as `indent`. */
static void append_wrapped(struct gd_strbuf *out, const char *text, int indent) {
  int column = 0;
  while (*text) {
    int length = (int)strcspn(text, " ");
    if (column > 0 && column + 1 + length > COLUMNS) {
      gd_strbuf_printf(out, "\n%*s", indent, "");
      column = indent;
    } else if (column > 0) {
      gd_strbuf_append(out, " ");
      column++;
    }
    gd_strbuf_append_bytes(out, text, (size_t)length);
    column += length;
    text += length;
    while (*text == ' ')
      text++;
  }
  gd_strbuf_append(out, "\n");
}

/* Formats a line of the list of assumptions. */
static void assume(struct gd_strbuf *out, const char *format, ...) GD_PRINTF(2, 3);
static void assume(struct gd_strbuf *out, const char *format, ...) {
  char line[1024] = "- ";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + 2, sizeof line - 2, format, arguments);
  va_end(arguments);
  append_wrapped(out, line, 2);
}

/* --- sentences ----------------------------------------------------------------------------- */

static void append_work(struct gd_strbuf *out, const struct gd_money_table *table) {
  const struct gd_recipe *recipe = &table->model->recipe;
  const struct gd_money_work *work = &table->work;
  char a[TEXT], b[TEXT], c[TEXT], d[TEXT];
  bool images = table->model->family->images;
  gd_strbuf_printf(out, "We will pre-train %s (%s parameters) on %s %s: %s training steps of %s ",
                   table->model->name, many(a, (double)work->parameters), many(b, work->tokens),
                   images ? "images" : "tokens", number(c, (double)recipe->steps),
                   number(d, (double)recipe->batch));
  if (images)
    gd_strbuf_append(out, "images each");
  else
    gd_strbuf_printf(out, "sequences of %s tokens each", number(a, (double)recipe->seq));
  gd_strbuf_printf(out, ", %s floating-point operations in all. ", power(a, work->train_flops));
}

/* A method's name in words, for people who do not know this program. */
static void append_method(struct gd_strbuf *out, const char *name) {
  const char *parts[GD_METHOD_PART_COUNT + 1];
  int count = 0;
  struct gd_method method;
  if (!name[0] || gd_method_parse(name, &method, NULL) != GD_OK)
    return;
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    const char *words = gd_method_row((enum gd_method_part_id)i)->words;
    bool said = !words; /* "compiled and fused kernels" says "fused kernels" too */
    for (int k = 0; k < count && !said; k++)
      said = strstr(parts[k], words) != NULL;
    if (!said && gd_method_has(&method, (enum gd_method_part_id)i))
      parts[count++] = words;
  }
  if (count == 0)
    parts[count++] = "no efficiency methods";
  gd_strbuf_append(out, "This uses ");
  for (int i = 0; i < count; i++)
    gd_strbuf_printf(out, "%s%s", i == 0 ? "" : i + 1 == count ? ", and " : ", ", parts[i]);
  gd_strbuf_append(out, ". ");
}

static void append_source(struct gd_strbuf *out, const struct gd_money_table *table,
                          const struct gd_time *time) {
  switch (time->times) {
  case GD_TIMES_MEASURED: gd_strbuf_printf(out, "%s", time->source); break;
  case GD_TIMES_PREDICTED: gd_strbuf_append(out, "predicted by simulation"); break;
  case GD_TIMES_PAPER:
    gd_strbuf_append(out, "as reported by Khandelwal et al., 2024, arXiv:2410.23261, Table 1");
    break;
  case GD_TIMES_ANALYTIC:
  case GD_TIMES_AUTO:
  case GD_TIMES_COUNT:
    gd_strbuf_printf(out, "an estimate: the GPUs reach %g %% of their peak rate",
                     100 * table->terms.mfu.value);
    break;
  }
}

static void append_time(struct gd_strbuf *out, const struct gd_money_table *table,
                        const struct gd_money_option *option) {
  const struct gd_time *time = &option->time;
  int count = option->machine->count;
  char a[TEXT], b[TEXT], c[TEXT];
  gd_strbuf_printf(out, "On one machine with %d %s GPU%s, a run takes %s day%s", count,
                   option->gpu->title, plural(count), number(a, time->days), plural(time->days));
  if (time->days_high > time->days_low)
    gd_strbuf_printf(out, " (%s to %s)", number(b, time->days_low), number(c, time->days_high));
  gd_strbuf_printf(out, ", or %s GPU-days (", number(a, count * time->days));
  append_source(out, table, time);
  gd_strbuf_append(out, "). ");
}

static void append_months(struct gd_strbuf *out, double months, double life_years) {
  char a[TEXT];
  if (!isfinite(months))
    gd_strbuf_append(out, "; renting costs no more than the electricity of an own machine. ");
  else
    gd_strbuf_printf(out, "; buying is the cheaper choice from %s month%s of use on%s. ",
                     number(a, months), plural(months),
                     months > 12 * life_years ? ", which is beyond the machine's life" : "");
}

/* A machine that is bought, and what renting it would cost. */
static void append_purchase(struct gd_strbuf *out, const struct gd_money_table *table,
                            const struct gd_money_option *option) {
  const struct gd_money_terms *terms = &table->terms;
  char a[TEXT], b[TEXT];
  if (option->owned) {
    gd_strbuf_append(out, "The machine is our own: nothing is bought or rented. ");
    return;
  }
  gd_strbuf_printf(out,
                   "The machine costs %s to buy; over a life of %g year%s, the run's share of "
                   "that is %s. ",
                   dollars(a, option->hardware_usd), terms->life_years.value,
                   plural(terms->life_years.value), dollars(b, option->experiment_usd));
  if (!isfinite(option->rent_usd))
    return;
  gd_strbuf_printf(out, "Renting the same GPUs for the run would cost %s (%s a GPU-hour)",
                   dollars(a, option->rent_usd),
                   dollars(b, option->rent_usd_per_hour / option->machine->count));
  append_months(out, option->break_even_months, terms->life_years.value);
}

/* GPUs that are rented, and from how many runs on a purchase is cheaper. */
static void append_rental(struct gd_strbuf *out, const struct gd_money_table *table,
                          const struct gd_money_advice *advice) {
  const struct gd_money_option *option = advice->option, *buy = advice->buy;
  char a[TEXT], b[TEXT];
  gd_strbuf_printf(out, "We will rent these GPUs for the run, which costs %s (%s a GPU-hour). ",
                   dollars(a, option->rent_usd),
                   dollars(b, option->rent_usd_per_hour / option->machine->count));
  if (!buy && advice->compared == 0)
    return; /* nothing that could be bought has days, or is in time */
  if (!buy) {
    gd_strbuf_printf(out,
                     "Buying does not pay: no machine would save its price within a life of %g "
                     "year%s. ",
                     table->terms.life_years.value, plural(table->terms.life_years.value));
    return;
  }
  gd_strbuf_printf(out, "Buying a machine instead pays from %s such run%s on: one with %d %s",
                   number(a, advice->buy_runs), plural(advice->buy_runs), buy->machine->count,
                   buy->gpu->title);
  gd_strbuf_printf(out, " costs %s and takes %s days a run", dollars(a, buy->hardware_usd),
                   number(b, buy->time.days));
  gd_strbuf_printf(out, ", against %s for the cheapest rent of a run. ",
                   dollars(a, advice->rent->rent_usd));
}

static void append_energy(struct gd_strbuf *out, const struct gd_money_option *option,
                          bool rented) {
  char a[TEXT], b[TEXT], c[TEXT];
  gd_strbuf_printf(out,
                   "The run consumes about %s kWh of electricity (%s%s) and causes the emission of "
                   "about %s of CO2.",
                   number(a, option->energy_kwh), rented ? "part of the rent; " : "",
                   dollars(b, option->energy_usd), co2(c, option->co2_kg));
}

/* --- assumptions --------------------------------------------------------------------------- */

/* What must be known before the time is believed. */
static void append_doubts(struct gd_strbuf *out, const struct gd_time *time) {
  switch (gd_physics_of(time->share)) {
  case GD_PHYSICS_IMPOSSIBLE:
    assume(out,
           "Caution: this time would need %.0f %% of the GPUs' peak rate, which is impossible. "
           "Measure or predict it before relying on it.",
           100 * time->share);
    break;
  case GD_PHYSICS_DOUBTFUL:
    assume(out,
           "Caution: this time would need %.0f %% of the GPUs' peak rate; training rarely reaches "
           "half of it.",
           100 * time->share);
    break;
  case GD_PHYSICS_FINE: break;
  }
  if (time->times == GD_TIMES_PREDICTED)
    assume(out, "Days: predicted, not measured: %s.", time->source);
  if (time->times == GD_TIMES_ANALYTIC)
    assume(out, "Whether the model fits in the GPUs' memory was not checked.");
}

static void append_rent_source(struct gd_strbuf *out, const struct gd_money_table *table,
                               const struct gd_money_option *option) {
  const struct gd_money_figure *own = &table->terms.rent_usd_per_gpu_hour;
  const struct gd_rent *rent = option->rent;
  char a[TEXT];
  if (own->value > 0)
    assume(out, "Rent: %s a GPU-hour (%s).", dollars(a, own->value), own->source);
  else if (rent)
    assume(out, "Rent: %s a GPU-hour, %s (%s, %s).", dollars(a, rent->usd_per_gpu_hour),
           rent->provider, rent->n_cites > 0 ? rent->cites[0].source : "no source",
           rent->n_cites > 0 ? rent->cites[0].date : "no date");
}

static void append_price_source(struct gd_strbuf *out, const struct gd_money_option *option) {
  const struct gd_machine *machine = option->machine;
  const struct gd_cite *price = gd_cite_of(option->gpu->cites, option->gpu->n_cites, "usd");
  const struct gd_cite *rest = machine->n_cites > 0 ? &machine->cites[0] : NULL;
  if (!isfinite(option->hardware_usd))
    return;
  if (price)
    assume(out, "Price of a GPU: %s, %s.", price->source, price->date);
  if (rest)
    assume(out, "Price of the machine: %s, %s.", rest->source, rest->date);
}

static void append_assumptions(struct gd_strbuf *out, const struct gd_money_table *table,
                               const struct gd_money_advice *advice) {
  const struct gd_money_option *option = advice->option;
  const struct gd_money_terms *terms = &table->terms;
  gd_strbuf_append(out, "\nAssumptions:\n");
  append_doubts(out, &option->time);
  if (option->time.times == GD_TIMES_ANALYTIC)
    assume(out, "Share of the peak rate: %g %% (%s).", 100 * terms->mfu.value, terms->mfu.source);
  assume(out, "One run, without failed or repeated ones, evaluation or storage of data.");
  if (!advice->rented && !option->owned)
    append_price_source(out, option);
  else if (advice->buy)
    append_price_source(out, advice->buy);
  if (!option->owned) {
    append_rent_source(out, table, option);
    assume(out, "Life of hardware: %g years (%s).", terms->life_years.value,
           terms->life_years.source);
  }
  const char *how;
  double gpu_w = gd_money_gpu_w(terms, option, &how);
  if (!terms->utilisation_given && option->time.gpu_power_w > 0)
    assume(out, "Power of a GPU: %.0f W of its %g W, %s; of the rest of the machine: %g W.", gpu_w,
           option->gpu->power_w, how, option->machine->power_w);
  else
    assume(out,
           "Power of a GPU: %g W, of which %g %% are drawn (%s); of the rest of the machine: %g W.",
           option->gpu->power_w, 100 * terms->utilisation.value, terms->utilisation.source,
           option->machine->power_w);
  assume(out, "Power usage effectiveness (cooling, losses): %g (%s).", terms->pue.value,
         terms->pue.source);
  assume(out, "Electricity: $%g a kWh (%s).", terms->usd_per_kwh.value, terms->usd_per_kwh.source);
  assume(out, "Emissions: %g g of CO2 a kWh (%s).", terms->g_co2_per_kwh.value,
         terms->g_co2_per_kwh.source);
}

void gd_money_paragraph(const struct gd_money_table *table, const struct gd_money_advice *advice,
                        struct gd_strbuf *out) {
  const struct gd_money_option *option = advice->option;
  struct gd_strbuf text = {0};
  append_work(&text, table);
  append_time(&text, table, option);
  append_method(&text, option->time.method);
  if (advice->rented)
    append_rental(&text, table, advice);
  else
    append_purchase(&text, table, option);
  append_energy(&text, option, advice->rented);
  if (text.failed)
    out->failed = true;
  else
    append_wrapped(out, text.text, 0);
  gd_strbuf_deinit(&text);
  append_assumptions(out, table, advice);
}
