/*
 * Status codes and the error record.
 *
 * Every function that can fail returns enum gd_status and takes a struct gd_error *. The first
 * failure fills the record with one sentence: the offending value and the remedy. Callers relay
 * with GD_TRY. Only src/cli turns a status into text on stderr and an exit code.
 *
 *   enum gd_status load(const char *path, struct gd_error *err) {
 *     if (path[0] == '\0')
 *       return gd_fail(err, GD_BAD_INPUT, "path is empty; name a file");
 *     GD_TRY(read_header(path, err));
 *     return GD_OK;
 *   }
 */
#ifndef GD_BASE_STATUS_H
#define GD_BASE_STATUS_H

enum gd_status {
  GD_OK = 0,
  GD_BAD_INPUT,    /* the user's file, option or value is wrong: exit 2 */
  GD_UNSUPPORTED,  /* well-formed, but this engine does not have it: exit 2 */
  GD_NOMEM_DEVICE, /* does not fit in device memory: an answer, exit 1 */
  GD_NOMEM_HOST,   /* does not fit in host memory: an answer, exit 1 */
  GD_MISMATCH,     /* verification failed: an answer, exit 1 */
  GD_ENVIRONMENT,  /* missing library, full disk, no permission: exit 3 */
  GD_INTERNAL,     /* a bug of ours: exit 4 */
};

struct gd_error {
  enum gd_status status; /* GD_OK until the first failure */
  const char *file;      /* where the first failure was raised */
  int line;
  char text[1024]; /* one sentence, no newline */
};

#define GD_MUST_USE                __attribute__((warn_unused_result))
#define GD_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

/* Records the first failure in err (later ones are ignored) and returns status. err may be NULL. */
void gd_fail_at(struct gd_error *err, enum gd_status status, const char *file, int line,
                const char *format, ...) GD_PRINTF(5, 6);
/* The value is `status` itself, so that compilers and analysers see that a failure is never OK. */
#define gd_fail(err, status, ...) \
  (gd_fail_at((err), (status), __FILE__, __LINE__, __VA_ARGS__), gd_status_itself(status))
/* Host memory that was refused: gd_nomem(err, "while reading %s", path). */
#define gd_nomem(err, ...) gd_fail((err), GD_ENVIRONMENT, "out of memory " __VA_ARGS__)
static inline enum gd_status gd_status_itself(enum gd_status status) {
  return status;
}

#define GD_TRY(expr)                        \
  do {                                      \
    enum gd_status gd_try_status_ = (expr); \
    if (gd_try_status_ != GD_OK)            \
      return gd_try_status_;                \
  } while (0)

/* Programmer errors only, never input: prints the place and aborts, in every build. */
_Noreturn void gd_assert_failed(const char *expr, const char *file, int line);
#define GD_ASSERT(expr) ((expr) ? (void)0 : gd_assert_failed(#expr, __FILE__, __LINE__))

/* Short lower-case word for a status: "ok", "bad input", ... */
const char *gd_status_name(enum gd_status status);

#endif
