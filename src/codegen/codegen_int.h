/*
 * What the files of this folder share.
 */
#ifndef GD_CODEGEN_CODEGEN_INT_H
#define GD_CODEGEN_CODEGEN_INT_H

#include "codegen/codegen.h"

/* The prelude of the C dialect in pieces, NULL at the end. */
extern const char *const gd_prelude_c[];

#endif
