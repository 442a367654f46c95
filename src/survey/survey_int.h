/*
 * What the files of src/survey share: texts made comparable.
 */
#ifndef GD_SURVEY_SURVEY_INT_H
#define GD_SURVEY_SURVEY_INT_H

#include "survey/survey.h"

enum { GD_SURVEY_FOLD = 256 }; /* bytes of a folded text; longer ones are no answer of the schema */

/*
 * As people mean it: lower case, typographic quotes and dashes as plain ones, no apostrophes,
 * blanks trimmed and single. Cut at the size.
 */
const char *gd_survey_fold(char out[GD_SURVEY_FOLD], const char *text);
/* The answer whose text or label it is, or -1. */
int gd_survey_find_answer(const struct gd_survey_question *question, const char *text);
/* Columns that are named as in the paper's own file (role, desktop_4) get the schema's names. */
enum gd_status gd_survey_name_columns(struct gd_survey *survey, struct gd_error *err) GD_MUST_USE;
/* The name of the column that marks synthetic rows, and what it says there. */
extern const char gd_survey_mark[], gd_survey_marked[];

#endif
