/*
 * The table of commands and the table of options, as data: the parser (options.c), the help of
 * every command, the manual page and the completion of shells read them.
 */
#include "cli/cli.h"
#include "cli/option_values.h"

/* --- commands ------------------------------------------------------------------------------ */

const struct gd_command gd_commands[GD_COMMAND_COUNT] = {
    [GD_COMMAND_MODELS] =
        {"models", "[MODEL]", 0, 1, "models that are known: sizes, FLOPs, recipes",
         "Lists the presets, or shows one model: a preset, its name on Hugging Face, a\n"
         "config.json or the folder that holds one. --check lists every field of one as\n"
         "used, ignored, unsupported or unknown; exit 1 when it cannot be trained.",
         "gpudays models pythia-160m", gd_cmd_models},
    [GD_COMMAND_GPUS] =
        {"gpus", "[GPU]", 0, 1, "GPUs that are known: peaks, memory, links, prices",
         "Lists the GPUs of the catalogue, or shows one with its machines and prices, and\n"
         "where every figure comes from. --check reads a file of your own.",
         "gpudays gpus a100", gd_cmd_gpus},
    [GD_COMMAND_ESTIMATE] =
        {"estimate", "[MODEL...]", 0, -1, "days at 100 % MFU of given GPUs: a lower bound",
         "Divides training FLOPs by the peak of the GPUs: Section 3.1 of the paper.\n"
         "Without arguments: the paper's nine models on its four GPUs.",
         "gpudays estimate pythia-1b --gpu a100 --count 4", gd_cmd_estimate},
    [GD_COMMAND_PLAN] =
        {"plan", "MODEL...", 0, -1, "memory by category and micro-batch, before a run",
         "Time, memory, dollars, without a run. Exit 1: it does not fit, or not in --days.",
         "gpudays plan pythia-160m --device-memory 8GiB", gd_cmd_plan},
    [GD_COMMAND_BENCH] =
        {"bench", "MODEL...", 1, -1, "measured here: step time, memory, days to train",
         "Measures training steps on this machine and tells how long the run would take.",
         "gpudays bench pythia-14m", gd_cmd_bench},
    [GD_COMMAND_TRAIN] =
        {"train", "MODEL|RUN", 1, -1, "the run itself: trains a model on tokens or images",
         "Trains MODEL on the data of --data with the plan that bench times, into a\n"
         "folder RUN: log, checkpoints, the model as transformers loads it. Interrupted,\n"
         "'gpudays train RUN' goes on, also with other --methods, --micro-batch or ranks.\n"
         "SIGTERM ends it in order, with a checkpoint; so do SIGINT, SIGHUP and SIGUSR1,\n"
         "but for those that were ignored when it began, as by nohup or a script's '&'.\n"
         "A second one, a second later or more, ends it at once. All of these exit with 0.",
         "gpudays train pythia-14m --data train.bin --eval val.bin -o run", gd_cmd_train},
    [GD_COMMAND_SAMPLE] =
        {"sample", "RUN", 1, 1, "lines of text out of a run, or out of a model folder",
         "Goes on with a text by the newest checkpoint of a run, or by the weights of a\n"
         "model folder of Hugging Face; in fp32, for a look at what was learnt.",
         "gpudays sample run --prompt 'The program'", gd_cmd_sample},
    [GD_COMMAND_EVALUATE] =
        {"evaluate", "RUN", 1, -1, "loss and perplexity, or top-1, of a run or model",
         "Computes the loss on token files or images by the newest checkpoint of a run\n"
         "or by the weights of a model folder, in fp32 and without dropout: perplexity,\n"
         "bits a byte by its tokenizer, top-1. Default: what the run has with --eval.",
         "gpudays evaluate run --data test.bin", gd_cmd_evaluate},
    [GD_COMMAND_RUNS] =
        {"runs", "[DIR...]", 0, -1, "runs of 'gpudays train': how far, loss, when done",
         "Lists runs: each DIR is one, or holds some; default: the folder runs. The date\n"
         "of a run that is being trained is that of its end, of others the last change.",
         "gpudays runs", gd_cmd_runs},
    [GD_COMMAND_WATCH] =
        {"watch", "DIR", 1, 1, "follows a run that is being trained, with its loss curve",
         "Shows how far a run is and the curve of its losses, until it ends. Where the\n"
         "output is piped, each step is a line.",
         "gpudays watch runs/pythia-14m", gd_cmd_watch},
    [GD_COMMAND_RESULTS] =
        {"results", "[VERB FILE...]", 0, -1, "trials that were measured, here or by others",
         "Lists the trials in the database of results. 'results save FILE' writes all of\n"
         "them to a file, 'results load FILE' adds those of another lab's, or of a table\n"
         "that 'results --csv' printed; FILE may be -, and 'results load h200' adds what\n"
         "comes with gpudays. 'results remove ID...', or with filters, forgets trials.",
         "gpudays results --model 'pythia-*' --sort days", gd_cmd_results},
    [GD_COMMAND_BEST] = {"best", "MODEL", 1, 1, "the fastest way to train it that was measured",
                         "Shows the best trial of a model on each device and number of ranks.\n"
                         "Exit 1 when there is none.",
                         "gpudays best pythia-14m", gd_cmd_best},
    [GD_COMMAND_EXPORT] =
        {"export", "MODEL", 1, 1, "a plan or a trial as settings for other tools",
         "Prints for a tool what plan answers for --gpu; without it the best trial that\n"
         "is stored, or the point of --methods. Exit 1 when it does not fit, or is none.",
         "gpudays export pythia-410m --gpu 4x3090 --format train.py", gd_cmd_export},
    [GD_COMMAND_SURVEY] =
        {"survey", "[FILE]", 0, 1, "answers to the compute survey: checked, counted, drawn",
         "Counts the answers in a CSV file; with -o DIR, draws Figures 1 and 8 from them.\n"
         "Exit 2 when the file does not answer the questions, with all that is wrong.",
         "gpudays survey answers.csv -o figures", gd_cmd_survey},
    [GD_COMMAND_TOKENS] =
        {"tokens", "FILE...", 1, -1, "text made into tokens, by a tokenizer.json",
         "Tokenizes text, a document a file, or JSONL, a document a line, by a tokenizer\n"
         "of Hugging Face, and writes a file of tokens. --decode prints them as text.",
         "gpudays tokens *.txt --tokenizer gpudays-4k -o train.bin", gd_cmd_tokens},
    [GD_COMMAND_COST] =
        {"cost", "[MODEL]", 0, 1, "machines to buy or rent: dollars, days, energy",
         "Says whether to rent or to buy, and what, for a run. Without MODEL: what can be\n"
         "trained for --budget. Exit 1 when nothing is likely to be within the limits.",
         "gpudays cost pythia-1b --tokens 20B --gpu 2x4090,8xa100", gd_cmd_cost},
    [GD_COMMAND_REPORT] =
        {"report", "", 0, -1, "tables and figures of the paper, and what was measured",
         "Writes a page (index.html) that needs no network, and next to it every table and\n"
         "figure as CSV, SVG and PNG; with the curves of runs that 'gpudays train' made.",
         "gpudays report -o out --runs runs", gd_cmd_report},
    [GD_COMMAND_VERIFY] =
        {"verify", "DIR", 1, 1, "numerics against a Hugging Face reference",
         "Compares loss, gradients and training losses with those stored in DIR.\n"
         "Exit 1 past the bounds.",
         "gpudays verify tests/reference/neox-parallel", gd_cmd_verify},
    [GD_COMMAND_CALIBRATE] =
        {"calibrate", "[VERB]", 0, -1, "measures this machine, so that times can be predicted",
         "Measures GEMMs, memory and links of this machine in about a minute, keeps\n"
         "their rates, and checks predictions made from them on steps it has not seen.\n"
         "'learn [TRIALS.csv...]' adds what trials and runs of the database, or of\n"
         "files, say; 'load FILE [NAME]' takes a calibration; 'list' shows all.",
         "gpudays calibrate", gd_cmd_calibrate},
    [GD_COMMAND_FIT] =
        {"fit", "", 0, 0, "the model of GPUs and stacks, from published rates",
         "Fits the parameters that --stack and GPUs that nobody measured rest on to the\n"
         "figures of data/published and your own, and says what they miss left out.",
         "gpudays fit -o data/fitted/published.json", gd_cmd_fit},
    [GD_COMMAND_ACCURACY] =
        {"accuracy", "[FILE...]", 0, -1, "predicted against measured, and against the paper",
         "Compares predictions with the trials of the database, or of files that\n"
         "'gpudays results --csv' wrote, with the paper's tables and with published rates,\n"
         "by fits that have not seen them. 'accuracy add FILE' checks rates of your own,\n"
         "compares them and keeps them for 'gpudays fit'; 'accuracy add --template' prints\n"
         "the columns of such a file and a row to fill in.",
         "gpudays accuracy results/h200.csv -o results/accuracy.md", gd_cmd_accuracy},
    [GD_COMMAND_PUBLISHED] =
        {"published", "[MODEL]", 0, 1, "rates that other people measured, with their sources",
         "Lists rates of training that others measured and published, those of models of\n"
         "about the size of MODEL first, with the share of the peak (MFU) and how far the\n"
         "prediction for the same software is off. 'gpudays accuracy add' adds your own.",
         "gpudays published gpt2 --gpu a100", gd_cmd_published},
    [GD_COMMAND_WHY] =
        {"why", "MODEL", 1, 1, "what holds back a run of yours, in any software",
         "Takes what you measured, or the log of nanoGPT, the Hugging Face Trainer,\n"
         "torchtitan, Megatron-LM or llm.c: says what such software reaches elsewhere, and\n"
         "which causes explain the gap, with evidence, gain and the change to make.\n"
         "Exit 1: a rate that the GPU cannot reach.",
         "gpudays why gpt2 --gpu 4xa100 --tokens-per-s 250000", gd_cmd_why},
    [GD_COMMAND_DOCTOR] = {"doctor", "", 0, 0, "what was found here, what is missing",
                           "Says what this machine offers and measures its peak FLOP/s.",
                           "gpudays doctor", gd_cmd_doctor},
    [GD_COMMAND_SCHEMA] =
        {"schema", "[COMMAND]", 0, 1, "names, types and units of what --json prints",
         "Shows the fields of the JSON of a command, or of all; with --json as JSON Schema\n"
         "(draft 2020-12), by which other programs can check what they read.",
         "gpudays schema plan", gd_cmd_schema},
    [GD_COMMAND_COMPLETION] =
        {"completion", "SHELL", 1, -1, "a script for bash, zsh or fish: complete by Tab",
         "Prints the script that completes commands, options and values of gpudays.\n"
         "An installed gpudays needs no more; otherwise the shell reads it when it starts.",
         "source <(gpudays completion bash)", gd_cmd_completion},
    [GD_COMMAND_HELP] =
        {"help", "[COMMAND]", 0, 1, "the commands, or the options of one of them",
         "Shows all commands, one command's options; or the methods, or the passes.",
         "gpudays help bench", gd_cmd_help},
};

/* --- options ------------------------------------------------------------------------------- */

#define ON(command)   (1u << GD_COMMAND_##command)
#define ON_TRIALS     (ON(PLAN) | ON(BENCH))
#define ON_TRAIN      ON(TRAIN)
#define ON_WEIGHTS    (ON(SAMPLE) | ON(EVALUATE))
#define ON_RUNS       (ON_TRIALS | ON(VERIFY))
#define ON_DEVICES    (ON_RUNS | ON(CALIBRATE))
#define ON_RECIPES    (ON(MODELS) | ON_TRIALS)
#define ON_SIZES      (ON_RECIPES | ON(ESTIMATE))
#define ON_STORE      (ON(RESULTS) | ON(BEST))
#define ON_CHOICE     (ON_STORE | ON(EXPORT))
#define EVERYWHERE    ((1u << GD_COMMAND_COUNT) - 1)
#define TARGET(name)  offsetof(struct gd_cli_options, name)
#define MOST_A_RECIPE 1000000000 /* as in a recipe's file; one token has no next one to learn */

const struct gd_option gd_option_table[] = {
    {"backend", "NAME", ON_DEVICES | ON_TRAIN | ON_WEIGHTS, 0, false,
     "cuda (default with a GPU), cpu, or ref: plain and slow", gd_value_backend, 0, 0, 0},
    {"threads", "N", ON_DEVICES | ON(DOCTOR) | ON_TRAIN | ON(TOKENS) | ON_WEIGHTS, 0, false,
     "threads to run with; with --gpu its CPUs, default 4", gd_value_int, TARGET(threads), 1, 4096},
    {"precision", "NAME", ON_SIZES | ON(VERIFY) | ON(BEST) | ON(EXPORT) | ON_TRAIN | ON(WHY), 0,
     false, "fp32, bf16 or fp16; default: the recipe's, verify: fp32", gd_value_precision, 0, 0, 0},
    {"gpu", "NAME", ON_TRIALS | ON(ESTIMATE) | ON(COST) | ON(PUBLISHED) | ON(EXPORT) | ON(WHY), 0,
     false, "a100, 4x3090, several by commas, or a file of yours", gd_value_text, TARGET(gpu), 0,
     0},
    {"count", "N",
     ON_TRIALS | ON(ESTIMATE) | ON(COST) | ON(PUBLISHED) | ON(TOKENS) | ON(EXPORT) | ON(WHY), 0,
     false, "how many GPUs, default 1 (plan: or 1,2,4,8); tokens", gd_value_counts, TARGET(count),
     1, 1000000},
    {"stack", "NAME", ON(PLAN) | ON(COST) | ON(PUBLISHED) | ON(EXPORT) | ON(WHY), 0, false,
     "own (default but of export), pytorch, megatron, paper", gd_value_stack, 0, 0, 0},
    {"peaks", "NAME", ON(ESTIMATE), 0, false, "datasheet (default) or paper: those of its Figure 9",
     gd_value_peaks, 0, 0, 0},
    {"check", "FILE", ON(GPUS) | ON(MODELS), 0, false,
     "a file of hardware or prices; of a model: each field", gd_value_text, TARGET(check), 0, 0},
    {"methods", "LIST", ON_RUNS | ON(EXPORT) | ON_TRAIN | ON(WHY), 0, false,
     "naive (of bench), free-lunch, all, free-lunch+ckpt+zero1", gd_value_text, TARGET(methods), 0,
     0},
    {"without", "PASSES", ON(PLAN) | ON(BENCH), 0, false,
     "passes to switch off, by commas: 'gpudays help passes'", gd_value_text, TARGET(without), 0,
     0},
    {"log", "FILE", ON(WHY), 0, false, "what the run printed; its format is found by content",
     gd_value_text, TARGET(log), 0, 0},
    {"tokens-per-s", "X", ON(WHY), 0, false, "tokens a second of the whole job, as 250K",
     gd_value_count, TARGET(tokens_per_s), 0, 0},
    {"samples-per-s", "X", ON(WHY), 0, false, "sequences, or images, a second of the whole job",
     gd_value_above, TARGET(samples_per_s), 0, 1000000000},
    {"step-time", "TIME", ON(WHY), 0, false, "of a training step of --batch, as 1.2s or 350ms",
     gd_value_step_time, TARGET(step_time), 0, 0},
    {"micro-batch", "SIZE", ON_TRIALS | ON(EXPORT) | ON_TRAIN | ON(EVALUATE) | ON(WHY), 0, false,
     "auto (default), pow2 or max of what fits; or a number", gd_value_micro_batch, 0, 1,
     MOST_A_RECIPE},
    {"device-memory", "SIZE", ON_TRIALS | ON(EXPORT) | ON_TRAIN | ON(EVALUATE), 0, false,
     "limit such as 8GiB; default: what is there", gd_value_bytes, TARGET(device_memory_bytes), 0,
     0},
    {"host-memory", "SIZE", ON_TRIALS | ON(EXPORT) | ON_TRAIN, 0, false,
     "limit for what stays in host memory", gd_value_bytes, TARGET(host_memory_bytes), 0, 0},
    {"seq", "N", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST) | ON_TRAIN | ON(EVALUATE) | ON(WHY), 0,
     false, "tokens a sequence, instead of the recipe's", gd_value_int, TARGET(seq), 2,
     MOST_A_RECIPE},
    {"batch", "N", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST) | ON_TRAIN | ON(WHY), 0, false,
     "sequences a training step, instead of the recipe's", gd_value_int, TARGET(batch), 1,
     MOST_A_RECIPE},
    {"steps", "N", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST) | ON_TRAIN, 0, false,
     "training steps of the run, instead of the recipe's", gd_value_int, TARGET(steps), 1,
     MOST_A_RECIPE},
    {"params", "COUNT", ON(PLAN) | ON(ESTIMATE) | ON(COST), 0, false,
     "instead of a model: 1.3B; FLOPs only, 6 N D", gd_value_count, TARGET(params), 0, 0},
    {"tokens", "COUNT", ON_SIZES | ON(BEST) | ON(EXPORT) | ON(COST) | ON_TRAIN, 0, false,
     "tokens of the run, such as 300B, instead of --steps", gd_value_count, TARGET(tokens), 0, 0},
    {"epochs", "N", ON_TRAIN, 0, false, "that often all of the data, instead of --steps: 1, 0.5",
     gd_value_above, TARGET(epochs), 0, 1000000},
    {"optimizer", "NAME", ON_RECIPES | ON(BEST) | ON(EXPORT) | ON_TRAIN, 0, false,
     "adam or adamw, instead of the recipe's", gd_value_optimizer, 0, 0, 0},
    {"drop-path", "P", ON_RECIPES | ON(BEST) | ON_TRAIN, 0, false,
     "of images: stochastic depth of the last block", gd_value_number, TARGET(drop_path), 0, 1},
    {"seed", "N", ON(BENCH) | ON(EXPORT) | ON(SURVEY) | ON_TRAIN | ON(SAMPLE), 0, false,
     "of what is random; default 0", gd_value_int, TARGET(seed), 0, INT64_MAX},
    {"deterministic", NULL, ON(BENCH) | ON_TRAIN, 0, false,
     "on a GPU: a resumed run has the same bits; slower", gd_value_switch, TARGET(deterministic), 0,
     0},
    {"sample-seconds", "S", ON(BENCH), 0, false,
     "time micro-steps and updates for S seconds each at most", gd_value_seconds,
     TARGET(sample_seconds), 0, 86400},
    {"ranks", "N", ON_TRIALS | ON_CHOICE | ON(CALIBRATE) | ON_TRAIN, 0, false,
     "ranks to train on, each a process; bench starts them", gd_value_int, TARGET(ranks), 1, 4096},
    {"rank-timeout", "S", ON(BENCH) | ON(CALIBRATE) | ON_TRAIN, 0, false,
     "most seconds of silence of a rank; default 300", gd_value_seconds, TARGET(rank_timeout), 0,
     1000000},
    {"retries", "N", ON_TRAIN, 0, false, "start again so often when a rank or the process dies",
     gd_value_int, TARGET(retries), 1, 1000000},
    {"slurm", NULL, ON(BENCH) | ON_TRAIN, 0, false,
     "as jobs of SLURM: one a trial; train: one after another", gd_value_switch, TARGET(slurm), 0,
     0},
    {"job-status", NULL, ON_TRAIN, 0, false, "with --slurm: show the jobs of a run, and its end",
     gd_value_switch, TARGET(job_status), 0, 0},
    {"nodes", "K", ON_TRIALS | ON_TRAIN | ON(EXPORT) | ON(WHY), 0, false,
     "with --gpu or --slurm; default: as few as hold the GPUs", gd_value_int, TARGET(nodes), 1,
     4096},
    {"machine", "NAME", ON_TRIALS | ON(COST) | ON(EXPORT) | ON(WHY), 0, false,
     "that holds the GPUs; cost: these alone, by commas", gd_value_text, TARGET(machine), 0, 0},
    {"network", "NAME", ON_TRIALS | ON(EXPORT) | ON(WHY), 0, false,
     "with --gpu: between nodes; 8xNAME is 8 cards a node", gd_value_text, TARGET(network), 0, 0},
    {"simulate", NULL, ON(BENCH), 0, false, "predict instead of measuring; nothing is stored",
     gd_value_switch, TARGET(simulate), 0, 0},
    {"fast", NULL, ON(BENCH), 0, false, "measure only what prediction cannot exclude",
     gd_value_switch, TARGET(fast), 0, 0},
    {"slurm-config", "FILE", ON(BENCH) | ON_TRAIN, 0, false,
     "what jobs ask for; default: the user's slurm.json", gd_value_text, TARGET(slurm_config), 0,
     0},
    {"slurm-device", "NAME", ON(BENCH) | ON_TRAIN, 0, false,
     "section of slurm.json; default: the GPU or backend", gd_value_text, TARGET(slurm_device), 0,
     0},
    {"slurm-dir", "DIR", ON(BENCH), 0, false, "folder that nodes share; default: next to the store",
     gd_value_text, TARGET(slurm_dir), 0, 0},
    {"models", "LIST", ON(BENCH), 0, false, "further models, joined by commas", gd_value_text,
     TARGET(models), 0, 0},
    {"fresh", NULL, ON(BENCH), 0, false, "measure also what is in the store", gd_value_switch,
     TARGET(fresh), 0, 0},
    {"retry-failed", NULL, ON(BENCH), 0, false,
     "measure again what has failed, whatever the reason", gd_value_switch, TARGET(retry_failed), 0,
     0},
    {"store", "FILE",
     ON(BENCH) | ON_CHOICE | ON(COST) | ON(REPORT) | ON(ACCURACY) | ON_TRAIN | ON(CALIBRATE), 0,
     false, "results; default $GPUDAYS_DB or the user's data folder", gd_value_text, TARGET(store),
     0, 0},
    {"no-store", NULL, ON(BENCH) | ON(REPORT), 0, false, "read no results and keep none",
     gd_value_switch, TARGET(no_store), 0, 0},
    {"time-limit", "TIME", ON(BENCH) | ON(CALIBRATE) | ON_TRAIN, 0, false,
     "end in order after 90s, 10m, 2h; it can go on", gd_value_time, TARGET(time_limit), 0,
     31536000},
    {"trial-timeout", "TIME", ON(BENCH), 0, false, "a trial that takes longer failed; default 1h",
     gd_value_time, TARGET(trial_timeout), 0, 31536000},
    {"profile", NULL, ON(BENCH), 0, false, "show where the time of a step goes, by kind of op",
     gd_value_switch, TARGET(profile), 0, 0},
    {"explain", "[PASS]", ON(PLAN), 0, false,
     "graph and plan; passes: what they do; PASS: its diff", gd_value_explain, 0, 0, 0},
    {"id", "ID", ON_CHOICE, 0, false, "the trial whose ID begins so", gd_value_id, 0, 0, 0},
    {"yes", NULL, ON(RESULTS), 0, false, "of remove: also more than one trial", gd_value_switch,
     TARGET(yes), 0, 0},
    {"model", "NAME", ON(RESULTS), 0, false, "of this model; * and ? stand for any letters",
     gd_value_text, TARGET(filter.model), 0, 0},
    {"method", "NAME", ON(RESULTS), 0, false, "of this method; * and ? likewise", gd_value_text,
     TARGET(filter.method), 0, 0},
    {"device", "NAME", ON_CHOICE, 0, false, "on a device with this in its name", gd_value_text,
     TARGET(filter.device), 0, 0},
    {"host", "NAME", ON_CHOICE, 0, false, "measured on this machine; * and ? likewise",
     gd_value_text, TARGET(filter.host), 0, 0},
    {"status", "NAME", ON(RESULTS), 0, false, "ok, infeasible, failed or implausible",
     gd_value_status, 0, 0, 0},
    {"since", "TIME", ON_CHOICE, 0, false, "measured since 2024-05-31, or in the last 24h or 7d",
     gd_value_since, 0, 0, 0},
    {"sort", "KEY", ON(RESULTS), 0, false, "time, days, model, method, device, status, mfu, memory",
     gd_value_sort, 0, 0, 0},
    {"reverse", NULL, ON(RESULTS), 0, false, "the other way round", gd_value_switch,
     TARGET(filter.reverse), 0, 0},
    {"limit", "N", ON(RESULTS) | ON(PUBLISHED), 0, false, "at most N rows", gd_value_int,
     TARGET(filter.limit), 1, INT64_MAX},
    {"pending", NULL, ON(RESULTS), 0, false, "trials that a search has yet to measure",
     gd_value_switch, TARGET(filter.pending), 0, 0},
    {"history", NULL, ON(RESULTS), 0, false, "also what later trials superseded", gd_value_switch,
     TARGET(filter.history), 0, 0},
    {"total", NULL, ON(RESULTS), 0, false, "counts and hours instead of a list", gd_value_switch,
     TARGET(total), 0, 0},
    {"tokenizer", "FILE", ON(TOKENS) | ON_TRAIN | ON_WEIGHTS, 0, false,
     "tokenizer.json, its folder, or gpudays-4k", gd_value_text, TARGET(tokenizer), 0, 0},
    {"split-lines", NULL, ON(TOKENS), 0, false, "each line of a text is a document",
     gd_value_switch, TARGET(split_lines), 0, 0},
    {"field", "NAME", ON(TOKENS), 0, false, "of JSONL, with the text; default text", gd_value_text,
     TARGET(field), 0, 0},
    {"eos", "TOKEN", ON(TOKENS), 0, false, "ends a document; default: the tokenizer's; or none",
     gd_value_text, TARGET(eos), 0, 0},
    {"special", NULL, ON(TOKENS), 0, false, "with the tokenizer's tokens around each document",
     gd_value_switch, TARGET(special), 0, 0},
    {"validation", "SHARE", ON(TOKENS), 0, false, "of documents, the last ones, to FILE.val: 0.01",
     gd_value_above, TARGET(validation), 0, 1},
    {"decode", NULL, ON(TOKENS), 0, false, "print files of tokens as text; --count: so many",
     gd_value_switch, TARGET(decode), 0, 0},
    {"format", "NAME", ON(EXPORT) | ON(TOKENS), 0, false,
     "hf train.py deepspeed torchtitan sbatch; llmc raw npy", gd_value_format, 0, 0, 0},
    {"output", "PATH",
     ON(PLAN) | ON(EXPORT) | ON(REPORT) | ON(SURVEY) | ON(TOKENS) | ON(CALIBRATE) | ON(FIT) |
         ON(ACCURACY) | ON_TRAIN,
     'o', false, "where to write: a file, or a folder of figures", gd_value_text, TARGET(output), 0,
     0},
    {"calibration", "NAME", ON(ACCURACY) | ON_TRIALS | ON(CALIBRATE), 0, false,
     "to predict by: of 'calibrate list', or a file", gd_value_text, TARGET(calibration), 0, 0},
    {"survey", "FILE", ON(REPORT), 0, false, "answers to draw Figures 1 and 8 from", gd_value_text,
     TARGET(survey), 0, 0},
    {"runs", "DIR", ON(REPORT), 0, false, "runs to draw; more may follow; default: runs, if there",
     gd_value_text, TARGET(runs), 0, 0},
    {"no-predictions", NULL, ON(REPORT), 0, false, "only the paper and what was measured",
     gd_value_switch, TARGET(no_predictions), 0, 0},
    {"job-time", "TIME", ON(EXPORT) | ON_TRAIN, 0, false, "limit of one job of SLURM; default 1d",
     gd_value_time, TARGET(job_time), 0, 31536000},
    {"questions", NULL, ON(SURVEY), 0, false, "print the questions and their answers",
     gd_value_switch, TARGET(questions), 0, 0},
    {"template", NULL, ON(SURVEY) | ON(ACCURACY) | ON(GPUS), 0, false,
     "print how such a file begins, to fill in", gd_value_switch, TARGET(template), 0, 0},
    {"synthetic", "N", ON(SURVEY), 0, false, "invent N answers, marked as synthetic", gd_value_int,
     TARGET(synthetic), 1, 100000},
    {"budget", "USD", ON(COST), 0, false, "for the machine, or its rent: 40000, 40k", gd_value_usd,
     TARGET(budget_usd), 0, 1000000000000},
    {"days", "N", ON(PLAN) | ON(COST), 0, false, "deadline: the interval must end within N days",
     gd_value_above, TARGET(days), 0, 1000000},
    {"wall-limit", "TIME", ON(PLAN) | ON(COST), 0, false,
     "a job ends after that long, 24h, and the next goes on", gd_value_time, TARGET(wall_limit), 0,
     31536000},
    {"queue-wait", "TIME", ON(PLAN) | ON(COST), 0, false,
     "a job waits that long before it begins: 6h", gd_value_time, TARGET(queue_wait), 0, 31536000},
    {"jobs", "N", ON(PLAN) | ON(COST), 0, false, "of the run in the queue at a time; default 1",
     gd_value_int, TARGET(jobs), 1, 1000},
    {"times", "SOURCE", ON(COST), 0, false, "of days: auto, measured, predicted, analytic or paper",
     gd_value_times, 0, 0, 0},
    {"rent", "OFFER", ON(COST), 0, false, "a provider's name, or USD a GPU-hour; default: least",
     gd_value_text, TARGET(rent), 0, 0},
    {"usd-per-hour", "USD", ON(COST), 0, false, "price of a GPU-hour, yours instead of any offer's",
     gd_value_usd, TARGET(usd_per_hour), 0, 1000},
    {"gpu-usd", "USD", ON(COST), 0, false, "price to buy one of the GPUs of --gpu", gd_value_usd,
     TARGET(gpu_usd), 0, 10000000},
    {"own", NULL, ON(COST), 0, false, "the GPUs are yours: no rent, no price, electricity alone",
     gd_value_switch, TARGET(own), 0, 0},
    {"energy", "NAME", ON(COST), 0, false, "the grid: us (default), eu, or one of yours",
     gd_value_text, TARGET(energy), 0, 0},
    {"kwh-usd", "USD", ON(COST), 0, false, "price of electricity, instead of the grid's",
     gd_value_number, TARGET(kwh_usd), 0, 100},
    {"co2", "GRAMS", ON(COST), 0, false, "CO2 a kWh, instead of the grid's", gd_value_number,
     TARGET(co2), 0, 10000},
    {"pue", "X", ON(COST), 0, false, "energy of the building over the machine's", gd_value_number,
     TARGET(pue), 1, 10},
    {"utilisation", "X", ON(COST), 0, false, "board power drawn; default: measured, modelled, or 1",
     gd_value_above, TARGET(utilisation), 0, 1},
    {"mfu", "X", ON(COST), 0, false, "--times analytic: share of the peak; default 0.4",
     gd_value_above, TARGET(mfu), 0, 1},
    {"text", NULL, ON(COST), 0, false, "the compute paragraph of a grant proposal", gd_value_switch,
     TARGET(text), 0, 0},
    {"data", "FILE", ON_TRAIN | ON(EVALUATE), 0, false,
     "token ids, more files behind, FILE:0.7; or images", gd_value_text, TARGET(data), 0, 0},
    {"eval", "FILE", ON_TRAIN, 0, false, "held out: the loss on it is logged; of images top-1",
     gd_value_text, TARGET(eval), 0, 0},
    {"augment", "LIST", ON_TRAIN, 0, false,
     "crop bicubic flip rand-m9 erase|noise=P mixup|cutmix=A", gd_value_text, TARGET(augment), 0,
     0},
    {"label-smoothing", "X", ON_TRAIN, 0, false, "of images: of a target, shared by all classes",
     gd_value_number, TARGET(label_smoothing), 0, 1},
    {"normalize", "NAME", ON_TRAIN | ON(EVALUATE), 0, false,
     "of pixels: imagenet, half or none; default: the model's", gd_value_text, TARGET(normalize), 0,
     0},
    {"data-threads", "N", ON_TRAIN | ON(EVALUATE), 0, false,
     "that decode images; default: one for each core", gd_value_int, TARGET(data_threads), 1, 256},
    {"eval-every", "N", ON_TRAIN, 0, false, "steps between evaluations; default: one at the end",
     gd_value_int, TARGET(eval_every), 1, MOST_A_RECIPE},
    {"lr", "X", ON_TRAIN, 0, false, "peak learning rate, instead of the recipe's", gd_value_above,
     TARGET(lr), 0, 1000},
    {"min-lr", "X", ON_TRAIN, 0, false, "where the schedule ends; default: a tenth of the peak",
     gd_value_number, TARGET(min_lr), 0, 1000},
    {"warmup", "N", ON_TRAIN, 0, false, "steps of linear warm-up, instead of the recipe's",
     gd_value_number, TARGET(warmup), 0, MOST_A_RECIPE},
    {"schedule", "NAME", ON_TRAIN, 0, false, "cosine, linear, wsd or constant, after the warm-up",
     gd_value_text, TARGET(schedule), 0, 0},
    {"betas", "PAIR", ON_TRAIN, 0, false, "of Adam: 0.9,0.95; default: the recipe's", gd_value_text,
     TARGET(betas), 0, 0},
    {"weight-decay", "X", ON_TRAIN, 0, false, "instead of the recipe's", gd_value_number,
     TARGET(weight_decay), 0, 1000},
    {"clip", "X", ON_TRAIN, 0, false, "largest gradient norm; 0: no clipping", gd_value_number,
     TARGET(clip), 0, 1000000},
    {"checkpoint-every", "WHEN", ON_TRAIN, 0, false, "steps (500) or time (30m); default 30m",
     gd_value_every, TARGET(checkpoint_every), 0, 0},
    {"keep", "N", ON_TRAIN, 0, false, "newest checkpoints that stay; default 2", gd_value_int,
     TARGET(keep), 1, 1000000},
    {"mask-token", "ID", ON_TRAIN | ON(EVALUATE), 0, false,
     "of masked models; default: RoBERTa's and BERT's", gd_value_number, TARGET(mask_token), 0,
     100000000},
    {"token-bytes", "N", ON_TRAIN | ON(EVALUATE), 0, false,
     "2 or 4: of ids in raw files; default: by content", gd_value_int, TARGET(token_bytes), 2, 4},
    {"decay", "N", ON_TRAIN, 0, false, "steps of decay of wsd; default: the last fifth",
     gd_value_number, TARGET(decay), 0, MOST_A_RECIPE},
    {"init", "FOLDER", ON_TRAIN, 0, false, "begin with the weights of this model folder",
     gd_value_text, TARGET(init), 0, 0},
    {"prompt", "TEXT", ON(SAMPLE), 0, false, "what the text begins with", gd_value_text,
     TARGET(prompt), 0, 0},
    {"length", "N", ON(SAMPLE), 0, false, "tokens to add; default 64", gd_value_int, TARGET(length),
     1, 1000000},
    {"temperature", "X", ON(SAMPLE), 0, false, "0: the likeliest token; default 0.8",
     gd_value_number, TARGET(temperature), 0, 100},
    {"top-p", "X", ON(SAMPLE), 0, false, "of the likeliest tokens up to this; default 0.95",
     gd_value_above, TARGET(top_p), 0, 1},
    {"samples", "N", ON(EVALUATE) | ON_TRAIN, 0, false,
     "to evaluate on; default: all, train: 256 sequences", gd_value_int, TARGET(samples), 1,
     MOST_A_RECIPE},
    {"check-hardware", "N", ON_TRAIN, 0, false,
     "every N steps and at spikes: do a micro-step twice", gd_value_int, TARGET(check_hardware), 1,
     MOST_A_RECIPE},
    {"dry-run", NULL, ON_TRAIN, 0, false, "show what would be trained, and end", gd_value_switch,
     TARGET(dry_run), 0, 0},
    {"once", NULL, ON(WATCH), 0, false, "show the run as it is now, and end", gd_value_switch,
     TARGET(once), 0, 0},
    {"man", NULL, ON(HELP), 0, false, "print the manual page; gpudays help --man | man -l -",
     gd_value_switch, TARGET(man), 0, 0},
    {"json", NULL, EVERYWHERE, 0, true, "print JSON, for programs", gd_value_switch, TARGET(json),
     0, 0},
    {"csv", NULL,
     ON_SIZES | ON(GPUS) | ON(SURVEY) | ON(COST) | ON_STORE | ON(ACCURACY) | ON(PUBLISHED) |
         ON(HELP) | ON(RUNS),
     0, true, "print the table as CSV", gd_value_switch, TARGET(csv), 0, 0},
    {"wide", NULL, EVERYWHERE, 0, true, "all columns of tables, however narrow the terminal",
     gd_value_switch, TARGET(wide), 0, 0},
    {"quiet", NULL, EVERYWHERE, 'q', true, "no progress line", gd_value_switch, TARGET(quiet), 0,
     0},
    {"help", NULL, EVERYWHERE, 'h', true, "show help of gpudays or of a command", gd_value_switch,
     TARGET(help), 0, 0},
    {"version", NULL, ON(NONE), 'V', true, "show the version", gd_value_switch, TARGET(version), 0,
     0},
};
enum { COUNT = sizeof gd_option_table / sizeof *gd_option_table };
_Static_assert((int)COUNT <= (int)GD_OPTIONS_MOST, "raise GD_OPTIONS_MOST");
const int gd_option_count = COUNT;
