/*
 * `gpudays completion SHELL`: the script that makes a shell complete what is typed after gpudays
 * (data/completion). The scripts know nothing themselves: they call
 *
 *   gpudays completion words -- WORD...
 *
 * with what stands after the program's name, the last word as far as it is typed, and are answered
 * from the tables of commands and options: a line that says how to go on (`words`, `files` or
 * `folders`, where names of these may follow; ` open` behind it where the word may go on after a
 * candidate), then a line for each candidate: the whole word, a tab, what it means.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/embedded.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "hw/hw.h"
#include "pass/pass.h"

struct completing {
  struct gd_cli *cli;
  /* what stands before the current word */
  enum gd_command_id id;
  int n_arguments;                     /* of the command */
  const char *verb;                    /* the first of them, NULL: none */
  bool ended;                          /* by "--": no options any more */
  const struct gd_option *waiting;     /* its value is the current word */
  unsigned char seen[GD_OPTIONS_MOST]; /* options that are given, by place in the table */
  /* the current word */
  const char *kept; /* what its candidates begin with: "--backend=", "naive,free-lunch+" */
  int kept_length;
  const char *start; /* what is to be completed behind that */
  /* the answer */
  const char *kind;
  bool open;
  struct gd_strbuf lines;
};

static void offer(struct completing *c, const char *word, const char *help) {
  if (strncmp(word, c->start, strlen(c->start)) == 0)
    gd_strbuf_printf(&c->lines, "%.*s%s\t%s\n", c->kept_length, c->kept, word, help);
}

/* Whether it is a whole word of text before the place. */
static bool stands_before(const char *word, const char *text, const char *place) {
  size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)) && at < place; at += length)
    if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
      return true;
  return false;
}

/* The current word is completed behind its last one of these characters. */
static void keep_through(struct completing *c, const char *separators) {
  for (const char *at = c->start; *at; at++)
    if (strchr(separators, *at)) {
      c->kept_length = (int)(at + 1 - c->kept);
      c->start = at + 1;
    }
}

/* --- values -------------------------------------------------------------------------------- */

static enum gd_status offer_models(struct completing *c, struct gd_error *err) {
  const char *const *names;
  int count;
  GD_TRY(gd_model_list(&c->cli->arena, &names, &count, err));
  for (int i = 0; i < count; i++)
    offer(c, names[i], "");
  return GD_OK;
}

static enum gd_status offer_gpus(struct completing *c, struct gd_error *err) {
  struct gd_hw hw = {0};
  GD_TRY(gd_hw_load(&hw, err));
  for (int i = 0; i < hw.n_gpus; i++)
    offer(c, hw.gpus[i].name, hw.gpus[i].title);
  gd_hw_deinit(&hw);
  return GD_OK;
}

/* Names of other records: machines hold GPUs, networks join them, the rest is of cost. */
static enum gd_status offer_records(struct completing *c, const char *option,
                                    struct gd_error *err) {
  struct gd_hw hw = {0};
  GD_TRY(gd_hw_load(&hw, err));
  for (int i = 0; i < hw.n_networks && strcmp(option, "network") == 0; i++)
    offer(c, hw.networks[i].name, hw.networks[i].title);
  for (int i = 0; i < hw.n_machines && strcmp(option, "machine") == 0; i++)
    offer(c, hw.machines[i].name, hw.machines[i].title);
  for (int i = 0; i < hw.n_energies && strcmp(option, "energy") == 0; i++)
    offer(c, hw.energies[i].name, hw.energies[i].title);
  gd_hw_deinit(&hw);
  return GD_OK;
}

/* Parts that can be added to the method typed so far. */
static void offer_methods(struct completing *c, bool list) {
  if (list)
    keep_through(c, ",");
  const char *method = c->start;
  keep_through(c, "+");
  int length = (int)(c->start - method);
  char text[2 * GD_METHOD_NAME], before[GD_METHOD_NAME] = "", after[GD_METHOD_NAME];
  struct gd_method parsed;
  snprintf(text, sizeof text, "%.*s", length > 0 ? length - 1 : 0, method);
  if (gd_method_parse(text, &parsed, NULL) == GD_OK)
    gd_method_name(&parsed, before);
  if (length == 0)
    offer(c, "all", "the search space");
  for (int i = 0; gd_method_word(i); i++) {
    snprintf(text, sizeof text, "%.*s%s", length, method, gd_method_word(i));
    if (gd_method_parse(text, &parsed, NULL) == GD_OK &&
        strcmp(gd_method_name(&parsed, after), before) != 0) /* else it is in there */
      offer(c, gd_method_word(i), "");
  }
  c->open = true;
}

/* Passes that can be switched off, joined by commas. */
static void offer_passes(struct completing *c) {
  int count;
  const struct gd_pass *passes = gd_passes(&count);
  keep_through(c, ",");
  for (int i = 0; i < count; i++)
    if (!passes[i].stays)
      offer(c, passes[i].name, passes[i].doc);
  c->open = true;
}

/*
 * Offers the values of an option that takes one of a few words. They are the words of its help line
 * that its parser accepts, so a new option is completed without further code.
 */
static void offer_named(struct completing *c, const struct gd_option *option) {
  struct gd_cli_options scratch = {0};
  if (option->parse(option, "\a", &scratch, NULL) == GD_OK)
    return; /* takes anything */
  for (const char *at = option->help; *at;) {
    char word[32];
    size_t length = strcspn(at, " ,;:()");
    snprintf(word, sizeof word, "%.*s", (int)length, at);
    if (length < sizeof word && islower((unsigned char)word[0]) &&
        !stands_before(word, option->help, at) &&
        option->parse(option, word, &scratch, NULL) == GD_OK)
      offer(c, word, "");
    at += length + strspn(at + length, " ,;:()");
  }
}

static enum gd_status offer_values(struct completing *c, const struct gd_option *option,
                                   struct gd_error *err) {
  if (strcmp(option->argument, "FILE") == 0 || strcmp(option->argument, "PATH") == 0)
    c->kind = "files";
  else if (strcmp(option->argument, "DIR") == 0)
    c->kind = "folders";
  else if (strcmp(option->name, "methods") == 0 || strcmp(option->name, "method") == 0)
    offer_methods(c, option->name[6] == 's');
  else if (strcmp(option->name, "without") == 0)
    offer_passes(c);
  else if (strcmp(option->name, "models") == 0 || strcmp(option->name, "model") == 0) {
    if (option->name[5] == 's') {
      keep_through(c, ",");
      c->open = true;
    }
    return offer_models(c, err);
  } else if (strcmp(option->name, "gpu") == 0)
    return offer_gpus(c, err);
  else if (strcmp(option->name, "network") == 0 || strcmp(option->name, "machine") == 0 ||
           strcmp(option->name, "energy") == 0)
    return offer_records(c, option->name, err);
  else
    offer_named(c, option);
  return GD_OK;
}

/* --- options, commands, arguments ---------------------------------------------------------- */

static void offer_options(struct completing *c) {
  const struct gd_option *options = gd_option_table;
  for (int i = 0; i < gd_option_count; i++) {
    char word[64];
    snprintf(word, sizeof word, "--%s", options[i].name);
    if ((options[i].commands & 1u << c->id) && !c->seen[i])
      offer(c, word, options[i].help);
  }
}

static void offer_commands(struct completing *c) {
  for (int i = 1; i < GD_COMMAND_COUNT; i++)
    offer(c, gd_commands[i].name, gd_commands[i].summary);
}

/* The word of the usage line that stands for the next argument, "MODEL"; "" after the last one. */
static void find_argument(const struct completing *c, char *word, size_t size) {
  const char *usage = gd_commands[c->id].arguments, *at = usage + strspn(usage, "[");
  for (int i = 0; *at; i++) {
    size_t length = strcspn(at, "[] .");
    snprintf(word, size, "%.*s", (int)length, at);
    at += length;
    if (i == c->n_arguments || strncmp(at, "...", 3) == 0) /* the last one may come again */
      return;
    at += strspn(at, "[] ");
  }
  word[0] = '\0';
}

static const struct {
  enum gd_command_id id;
  const char *name, *help;
} verbs[] = {
    {GD_COMMAND_RESULTS, "save", "write all trials to a file"},
    {GD_COMMAND_RESULTS, "load", "add the trials of a file, or published ones"},
    {GD_COMMAND_RESULTS, "remove", "forget trials"},
    {GD_COMMAND_CALIBRATE, "learn", "add what trials and runs say"},
    {GD_COMMAND_CALIBRATE, "load", "take a calibration"},
    {GD_COMMAND_CALIBRATE, "list", "show all calibrations"},
};

/* Results that come with gpudays, by name. */
static void offer_published(struct completing *c) {
  static const char folder[] = "results/";
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const char *name = gd_embedded_files[i].path + sizeof folder - 1;
    char word[64];
    if (strncmp(gd_embedded_files[i].path, folder, sizeof folder - 1) != 0)
      continue;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "."), name);
    offer(c, word, "published with gpudays");
  }
}

static enum gd_status offer_arguments(struct completing *c, struct gd_error *err) {
  char argument[32] = "";
  find_argument(c, argument, sizeof argument);
  if (strcmp(argument, "COMMAND") == 0) {
    offer_commands(c);
  } else if (strcmp(argument, "VERB") == 0) {
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
      if (verbs[i].id == c->id)
        offer(c, verbs[i].name, verbs[i].help);
  } else if (strcmp(argument, "SHELL") == 0) {
    offer(c, "bash", "");
    offer(c, "zsh", "");
    offer(c, "fish", "");
  } else if (strcmp(argument, "DIR") == 0) {
    c->kind = "folders";
  } else if (argument[0] && !(c->verb && strcmp(c->verb, "remove") == 0)) {
    c->kind = "files";
    if (c->verb && c->id == GD_COMMAND_RESULTS && strcmp(c->verb, "load") == 0)
      offer_published(c);
    if (strcmp(argument, "MODEL") == 0)
      return offer_models(c, err);
    if (strcmp(argument, "GPU") == 0)
      return offer_gpus(c, err);
  }
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

/* What the words before the current one have said, as gd_options_parse reads them. */
static void read_words(struct completing *c, const char *const *words, int count) {
  const char *name;
  size_t length;
  for (int i = 0; i < count; i++) {
    const char *word = words[i];
    if (c->waiting) {
      c->waiting = NULL;
    } else if (!c->ended && strcmp(word, "--") == 0) {
      c->ended = true;
    } else if (!c->ended && word[0] == '-' && word[1]) {
      const struct gd_option *option = gd_option_find(word, &name, &length);
      if (option)
        c->seen[option - gd_option_table] = 1;
      c->waiting = option && option->argument && name[length] != '=' ? option : NULL;
    } else if (c->id == GD_COMMAND_NONE) {
      if (gd_command_find(word, &c->id, NULL) != GD_OK)
        c->ended = true; /* nonsense: nothing is known about what follows */
    } else {
      c->verb = c->n_arguments == 0 ? word : c->verb;
      c->n_arguments++;
    }
  }
}

static enum gd_status answer(struct completing *c, struct gd_error *err) {
  const char *name;
  size_t length;
  if (c->waiting)
    return offer_values(c, c->waiting, err);
  if (!c->ended && c->start[0] == '-') {
    const struct gd_option *option = c->start[1] ? gd_option_find(c->start, &name, &length) : NULL;
    if (!option || !option->argument || c->start[1] != '-' || name[length] != '=') {
      offer_options(c);
      return GD_OK;
    }
    c->kept_length = (int)(name + length + 1 - c->kept);
    c->start = name + length + 1;
    return offer_values(c, option, err);
  }
  if (c->id != GD_COMMAND_NONE)
    return offer_arguments(c, err);
  if (!c->ended)
    offer_commands(c);
  return GD_OK;
}

static enum gd_status complete_words(struct gd_cli *cli, struct gd_error *err) {
  const char *const *words = cli->arguments + 1;
  int count = cli->n_arguments - 1;
  const char *current = count > 0 ? words[count - 1] : "";
  struct completing c = {.cli = cli, .kept = current, .start = current, .kind = "words"};
  read_words(&c, words, count - 1);
  enum gd_status status = answer(&c, err);
  if (status == GD_OK)
    gd_strbuf_printf(&cli->out, "%s%s\n%s", c.kind, c.open ? " open" : "",
                     c.lines.text ? c.lines.text : "");
  cli->out.failed = cli->out.failed || c.lines.failed;
  gd_strbuf_deinit(&c.lines);
  return status;
}

enum gd_status gd_cmd_completion(struct gd_cli *cli, struct gd_error *err) {
  const char *shell = cli->arguments[0];
  char path[64], clean[32];
  struct gd_show_object answer;
  cli->verbatim = true;
  if (strcmp(shell, "words") == 0)
    return complete_words(cli, err);
  snprintf(path, sizeof path, "completion/gpudays.%.16s", shell);
  const char *script = gd_cli_embedded(path);
  if (!script || cli->n_arguments > 1)
    return gd_fail(err, GD_BAD_INPUT, "completion is for bash, zsh or fish, not for \"%s\"",
                   gd_json_excerpt(clean, sizeof clean, cli->arguments[cli->n_arguments - 1]));
  if (!cli->options.json) {
    gd_strbuf_append(&cli->out, script);
    return GD_OK;
  }
  gd_show_begin(&answer);
  gd_show_set_text(&answer, "shell", shell);
  gd_show_set_text(&answer, "script", script);
  return gd_show_json(&cli->out, &answer, err);
}
