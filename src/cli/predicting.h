/*
 * What commands that predict have in common: the hardware of --gpu, --count, --nodes, --machine and
 * --network, or this machine; and how a prediction looks, in tables and in JSON.
 */
#ifndef GD_CLI_PREDICTING_H
#define GD_CLI_PREDICTING_H

#include "cli/show.h"
#include "predict/predict.h"
#include "search/points.h"

struct gd_cli;

struct gd_predicting {
  struct gd_hw hw;         /* loaded with a target, which borrows from it */
  struct gd_target target; /* with --gpu */
  bool has_target;
  struct gd_place place; /* without a target: what the backend finds here */
  struct gd_predictor predictor;
};

/* Opens the catalogue and the calibration. With --gpu, sets options.ranks and nodes to those of
   the target, and --threads the CPUs that each of its GPUs has. */
enum gd_status gd_predicting_open(struct gd_predicting *p, struct gd_cli *cli,
                                  struct gd_error *err) GD_MUST_USE;
void gd_predicting_close(struct gd_predicting *p); /* safe on a zeroed one */
/* What the command line asks of points, but for the machines: models and methods, in the arena, and
   settings. methods: those where --methods is not given. */
enum gd_status gd_points_of_cli(struct gd_cli *cli, const char *methods,
                                struct gd_points_asked *asked, struct gd_error *err) GD_MUST_USE;
/* The target, or this machine, as what points are made for. */
struct gd_point_machine gd_predicting_machine(const struct gd_predicting *p);

/* Whether times are worth showing: of a target always, of this machine once it was calibrated. */
bool gd_predicting_shows(const struct gd_predicting *p);

/* Puts the predicted times in the place of the measured ones, and says that they are. */
void gd_show_prediction(struct gd_show_object *to, const struct gd_predicting *p,
                        const struct gd_trial *trial, const struct gd_prediction *prediction);
/* The nodes of a target and the network between them: for programs, network null where there is one
   node; for people a line, or nothing. */
void gd_show_target(struct gd_show_object *to, const struct gd_target *target);
void gd_show_nodes(struct gd_cli *cli, const struct gd_target *target);
/* How much of a step the GPUs of a target compute, and what they exchange in it, by program and
   kind, with the links that carry it; nothing for one GPU. */
enum gd_status gd_show_collectives(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_point *point, struct gd_error *err) GD_MUST_USE;
/* "predicted; unvalidated on ...: x0.60 to x1.67" as a paragraph, or the hint to calibrate.
   classes: a bit (1 << class) for each class of the points shown; with offload, how many CPUs a GPU
   has. */
void gd_show_basis(struct gd_cli *cli, const struct gd_predicting *p, unsigned classes);
/* A GPU that kernels are not written for has a prediction, and can have no trial: a note. */
void gd_show_too_old(struct gd_cli *cli, const struct gd_predicting *p);

#endif
