/*
 * `gpudays schema`: what --json of each command holds, out of the tables data/schema/commands.csv
 * and fields.csv: as a table, and with --json as JSON Schema (draft 2020-12,
 * https://json-schema.org/draft/2020-12). tests/cli/test_schema.c holds the output of the commands
 * against it, in both directions.
 */
#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/show.h"

enum { NAME = 64, MOST_OBJECTS = 128 };

struct schema {
  struct gd_cli *cli;
  struct gd_csv commands, fields;
  const char *objects[MOST_OBJECTS]; /* that are shown, in the order of their first use */
  int n_objects;
};

static const char *cell(const struct gd_csv *csv, int row, const char *column) {
  return gd_csv_cell(csv, row, gd_csv_column(csv, column));
}

static enum gd_status read_table(struct gd_csv *csv, const char *path, struct gd_error *err) {
  const char *text = gd_cli_embedded(path);
  GD_ASSERT(text);
  return gd_csv_parse(csv, path, text, (int64_t)strlen(text), err);
}

/* "trial" of "trial[]", "trial{}" and "trial?{}"; *is says which: 0, '[', '{' or '?'. */
static const char *kind_of(const char *type, char name[NAME], char *is) {
  size_t length = strcspn(type, "[{?");
  snprintf(name, NAME, "%.*s", (int)length, type);
  *is = type[length];
  return name;
}

/* A scalar is a number or a text. */
static const char *schema_type(const char *name) {
  static const char *const types[][2] = {{"text", "string"},
                                         {"integer", "integer"},
                                         {"number", "number"},
                                         {"boolean", "boolean"},
                                         {"scalar", "number"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i][0], name) == 0)
      return types[i][1];
  return NULL;
}

/* --- which objects ------------------------------------------------------------------------- */

static void add_object(struct schema *schema, const char *name) {
  for (int i = 0; i < schema->n_objects; i++)
    if (strcmp(schema->objects[i], name) == 0)
      return;
  GD_ASSERT(schema->n_objects < MOST_OBJECTS);
  const char *copy = gd_show_cell(schema->cli, "%s", name);
  if (copy)
    schema->objects[schema->n_objects++] = copy;
}

/* Those that the command prints, NULL: all of them, and those inside of them. */
static enum gd_status find_objects(struct schema *schema, const char *command,
                                   struct gd_error *err) {
  char name[NAME], is;
  for (int i = 0; i < schema->commands.rows; i++)
    if (!command || strcmp(cell(&schema->commands, i, "command"), command) == 0)
      add_object(schema, cell(&schema->commands, i, "object"));
  if (schema->n_objects == 0)
    return gd_fail(err, GD_BAD_INPUT, "%s prints no JSON of its own with --json", command);
  for (int k = 0; k < schema->n_objects; k++)
    for (int i = 0; i < schema->fields.rows; i++)
      if (strcmp(cell(&schema->fields, i, "object"), schema->objects[k]) == 0 &&
          !schema_type(kind_of(cell(&schema->fields, i, "type"), name, &is)))
        add_object(schema, name);
  return GD_OK;
}

/* --- for people ---------------------------------------------------------------------------- */

static void append_forms(struct schema *schema, const char *command) {
  struct gd_strbuf *out = &schema->cli->out;
  for (int i = 0; i < schema->commands.rows; i++) {
    const struct gd_csv *csv = &schema->commands;
    const char *when = cell(csv, i, "when"), *of = cell(csv, i, "command");
    if (!command || strcmp(of, command) == 0)
      gd_strbuf_printf(out, "%s --json%s%s: %s\n", of, when[0] ? ", " : "", when,
                       cell(csv, i, "object"));
  }
}

static enum gd_status append_object(struct schema *schema, const char *object,
                                    struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"FIELD", false, 0},
                                                  {"TYPE", false, 0},
                                                  {"UNIT", false, 1},
                                                  {"MAY BE", false, 2},
                                                  {"MEANING", false, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(schema->cli, columns);
  const struct gd_csv *csv = &schema->fields;
  for (int i = 0; i < csv->rows; i++) {
    if (strcmp(cell(csv, i, "object"), object) != 0)
      continue;
    bool null = strcmp(cell(csv, i, "nullable"), "yes") == 0,
         always = strcmp(cell(csv, i, "always"), "yes") == 0;
    const char **row = gd_show_row(&rows);
    row[0] = cell(csv, i, "field");
    row[1] = cell(csv, i, "type");
    row[2] = cell(csv, i, "unit");
    row[3] = null && !always ? "null, missing" : null ? "null" : always ? "" : "missing";
    row[4] = cell(csv, i, "meaning");
  }
  gd_strbuf_printf(&schema->cli->out, "\n%s\n", object);
  return gd_show_rows(&rows, 2, err);
}

static enum gd_status show_tables(struct schema *schema, const char *command,
                                  struct gd_error *err) {
  append_forms(schema, command);
  gd_show_paragraph(&schema->cli->out, 0,
                    "A type with [] is an array, one with {} an object of such values by "
                    "name, with ?{} of such values or null. A scalar is a number or a text.");
  for (int k = 0; k < schema->n_objects; k++)
    GD_TRY(append_object(schema, schema->objects[k], err));
  return GD_OK;
}

/* --- JSON Schema --------------------------------------------------------------------------- */

/* What a value of that type may be; the caller's to decref. NULL without memory. */
static json_t *value_schema(const char *type, bool null) {
  char name[NAME], is;
  kind_of(type, name, &is);
  const char *plain = schema_type(name);
  json_t *value = plain ? json_pack("{s:s}", "type", plain)
                        : json_pack("{s:o}", "$ref", json_sprintf("#/$defs/%s", name));
  if (strcmp(name, "scalar") == 0)
    value = json_pack("{s:[o, {s:s}]}", "anyOf", value, "type", "string");
  if (is == '?') /* a name may have no value */
    value = json_pack("{s:[o, {s:s}]}", "anyOf", value, "type", "null");
  if (is == '[')
    value = json_pack("{s:s, s:o}", "type", "array", "items", value);
  else if (is == '{' || is == '?')
    value = json_pack("{s:s, s:o}", "type", "object", "additionalProperties", value);
  if (!null)
    return value;
  return json_pack("{s:[o, {s:s}]}", "anyOf", value, "type", "null");
}

static void set_field(struct schema *schema, int row, struct gd_show_object *properties,
                      json_t *required) {
  const struct gd_csv *csv = &schema->fields;
  const char *name = cell(csv, row, "field"), *unit = cell(csv, row, "unit"),
             *meaning = cell(csv, row, "meaning");
  struct gd_show_object field = {
      .object =
          value_schema(cell(csv, row, "type"), strcmp(cell(csv, row, "nullable"), "yes") == 0)};
  field.failed = !field.object;
  if (unit[0])
    gd_show_set_text(&field, "unit", unit);
  if (meaning[0])
    gd_show_set_text(&field, "description", meaning);
  gd_show_set_object(properties, name, &field);
  if (strcmp(cell(csv, row, "always"), "yes") == 0 &&
      json_array_append_new(required, json_string(name)) != 0)
    properties->failed = true;
}

static void set_object(struct schema *schema, const char *object, struct gd_show_object *defs) {
  struct gd_show_object to, properties;
  json_t *required = json_array();
  gd_show_begin(&to);
  gd_show_begin(&properties);
  for (int i = 0; i < schema->fields.rows; i++)
    if (strcmp(cell(&schema->fields, i, "object"), object) == 0)
      set_field(schema, i, &properties, required);
  gd_show_set_text(&to, "type", "object");
  gd_show_set_object(&to, "properties", &properties);
  gd_show_set(&to, "required", required);
  gd_show_set_object(defs, object, &to);
}

static enum gd_status show_schema(struct schema *schema, const char *command,
                                  struct gd_error *err) {
  struct gd_show_object root, defs, any = {.object = json_array()};
  gd_show_begin(&root);
  gd_show_begin(&defs);
  gd_show_set_text(&root, "$schema", "https://json-schema.org/draft/2020-12/schema");
  gd_show_set_text(&root, "title",
                   gd_show_cell(schema->cli, "gpudays %s --json", command ? command : "COMMAND"));
  for (int i = 0; i < schema->commands.rows; i++) {
    const char *when = cell(&schema->commands, i, "when"),
               *of = cell(&schema->commands, i, "command");
    if (command && strcmp(of, command) != 0)
      continue;
    struct gd_show_object form = {.object =
                                      value_schema(cell(&schema->commands, i, "object"), false)};
    gd_show_set_text(&form, "description",
                     gd_show_cell(schema->cli, "%s%s%s", of, when[0] ? ", " : "", when));
    gd_show_append(&any, &form);
  }
  gd_show_set_object(&root, "anyOf", &any);
  for (int k = 0; k < schema->n_objects; k++)
    set_object(schema, schema->objects[k], &defs);
  gd_show_set_object(&root, "$defs", &defs);
  return gd_show_json(&schema->cli->out, &root, err);
}

enum gd_status gd_cmd_schema(struct gd_cli *cli, struct gd_error *err) {
  struct schema schema = {.cli = cli};
  const char *command = cli->n_arguments > 0 ? cli->arguments[0] : NULL;
  enum gd_command_id id;
  if (command && strcmp(command, "gpudays") != 0)
    GD_TRY(gd_command_find(command, &id, err));
  enum gd_status status = read_table(&schema.commands, "schema/commands.csv", err);
  if (status == GD_OK)
    status = read_table(&schema.fields, "schema/fields.csv", err);
  if (status == GD_OK)
    status = find_objects(&schema, command, err);
  if (status == GD_OK)
    status =
        cli->options.json ? show_schema(&schema, command, err) : show_tables(&schema, command, err);
  gd_csv_deinit(&schema.commands);
  gd_csv_deinit(&schema.fields);
  return status;
}
