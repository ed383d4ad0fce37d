/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that says which commands and options there are. */
#include "cli/commands.h"

#include <string.h>

#include "agent/agent.h"
#include "driver/driver.h"

static const struct hy_option run_options[] = {
    {.name = "grid",
     .value = "NAME=V,V,…",
     .many = true,
     .help = "try every combination of these values (layers=1..4 counts up; NAME=[JSON,…], NAME=@FILE)"},
    {.name = "paired",
     .help = "with --grid: no combinations, but the first values together, the second ones, …"},
    {.name = "random", .value = "N", .help = "try N random points of the --space (0: until it is stopped)"},
    {.name = "evolve", .help = "differential evolution over the --space; needs --max or --min"},
    {.name = "space",
     .value = "NAME=RANGE",
     .many = true,
     .help = "lr=log:1e-5..1e-1, layers=1..4 (whole numbers), x=-5.12..5.12, act=relu,tanh"},
    {.name = "max", .value = "METRIC", .help = "the metric to make large; trials print METRIC=VALUE"},
    {.name = "min", .value = "METRIC", .help = "the metric to make small"},
    {.name = "population", .value = "N", .help = "evolve: how many points live at a time"},
    {.name = "generations",
     .value = "N",
     .help = "evolve: how many times they change (0: until it is stopped)"},
    {.name = "mutation", .value = "F", .help = "evolve: the differential weight, 0 to 2"},
    {.name = "crossover", .value = "CR", .help = "evolve: how likely a value is taken over, 0 to 1"},
    {.name = "strategy", .value = "S", .help = "evolve: best1bin or rand1bin"},
    {.name = "async", .help = "evolve: wait for nobody between generations"},
    {.name = "parallel", .value = "N", .help = "run at most N trials at a time (default: all slots)"},
    {.name = "oversubscribe", .help = "do not wait for cores of this machine that other runs use"},
    {.name = "memory", .value = "SIZE", .help = "end a trial that uses more, as in 512M or 4G"},
    {.name = "max-transfer",
     .value = "SIZE",
     .help = "copy at most so much of a trial's files from a machine without the project folder (default: 100G)"},
    {.name = "gpus",
     .value = "N",
     .help = "GPUs for each trial, or a share of one, as in 0.2 (0 hides them; default: left alone)"},
    {.name = "timeout", .value = "TIME", .help = "end an attempt that takes longer, as in 90s, 15m or 1h"},
    {.name = "disk-timeout",
     .value = "TIME",
     .help = "interrupt the run when its disk is full or its store locked for longer (default: 10m)"},
    {.name = "retries", .value = "N", .help = "try a failed trial N more times"},
    {.name = "seed", .value = "N", .help = "the same seed gives the same trials (default: random)"},
    {.name = "hosts",
     .value = "HOST[:SLOTS],…",
     .help = "run on these machines, by ssh (one slot each if not said)"},
    HY_ENGINE_OPTIONS,
    {.name = "listen", .value = "[ADDR:]PORT", .help = "let agents of other machines join; says how they do"},
    {.name = "name", .value = "NAME", .help = "a name to call the run by"},
    {.name = "tensorboard", .help = "show it in a TensorBoard that ends with this command"},
    {.name = "detach", .letter = 'd', .help = "start it and leave it running"},
    {.name = "json", .help = "tell of it in JSON, one object a line"},
    {.name = "html", .help = "tell of it in HTML, for notebooks: each line replaces the one before"},
    /* How the Python face asks for a run of a function; not shown. */
    {.name = "function", .value = "FILE"},
    {.name = "title", .value = "TEXT"},
    {.name = "metric-optional"},
    {.name = "standby", .value = "PID:KEY"},
    {.name = "app-id", .value = "ID"},
    {0},
};

static const struct hy_option json_options[] = {
    {.name = "json", .help = "print JSON"},
    {0},
};

static const struct hy_option attach_options[] = {
    {.name = "json", .help = "tell of it in JSON, one object a line"},
    {.name = "html", .help = "tell of it in HTML, for notebooks: each line replaces the one before"},
    {.name = "no-reason"}, /* for the Python package, which raises why a training failed */
    {0},
};

static const struct hy_option show_options[] = {
    {.name = "trials", .value = "N", .help = "how many trials to list, or 'all' (default: 50)"},
    {.name = "by-number", .help = "list them in their order, not the best first"},
    {.name = "json", .help = "print JSON"},
    {0},
};

static const struct hy_option logs_options[] = {
    {.name = "follow", .letter = 'f', .help = "go on as more is printed, until it has ended"},
    {.name = "stdout", .help = "only what was printed on standard output"},
    {.name = "stderr", .help = "only what was printed on standard error"},
    {0},
};

static const struct hy_option tensorboard_options[] = {
    {.name = "port", .value = "N", .help = "listen on this port (default: any that is free)"},
    {.name = "owner", .value = "PID", .help = "end when this process ends"},
    {0},
};

static const struct hy_option supply_options[] = {
    {.name = "feeds", .help = "rows come to the run's nodes from that program"},
    {0},
};

static const struct hy_option stop_options[] = {
    {.name = "feed", .help = "only what is fed to a cluster: its nodes take what has come, and end"},
    {0},
};

static const struct hy_option resume_options[] = {
    {.name = "tensorboard", .help = "show it in a TensorBoard that ends with this command"},
    {.name = "detach", .letter = 'd', .help = "start it and leave it running"},
    {.name = "json", .help = "tell of it in JSON, one object a line"},
    {.name = "html", .help = "tell of it in HTML, for notebooks: each line replaces the one before"},
    /* How the Python face goes on with a session; not shown. */
    {.name = "engine", .value = "session"},
    {.name = "address", .value = "ADDR"},
    {0},
};

static const struct hy_option rm_options[] = {
    {.name = "force", .letter = 'f', .help = "do not ask (in a pipe nobody is asked anyway)"},
    {0},
};

static const struct hy_option gc_options[] = {
    {.name = "all", .letter = 'a', .help = "what your other projects have left on this machine, too"},
    {.name = "logs", .help = "also remove log folders of runs that the store does not know"},
    {.name = "dry-run", .letter = 'n', .help = "only say what would be removed or ended"},
    {.name = "force", .letter = 'f', .help = "do not ask (in a pipe nobody is asked anyway)"},
    {0},
};

static const char run_about[] =
    "Runs a command once for every choice of its parameters, several at a time, and\n"
    "shows how they do. {name} in the command is replaced by the parameter's value;\n"
    "{{ and }} stand for braces. Without parameters the command runs once.\n"
    "\n"
    "A trial's metric is the last METRIC=VALUE it prints, or what it writes as JSON\n"
    "to $HOPYARD_RESULT; `hopyard report` streams values while it trains. Files it\n"
    "keeps in $HOPYARD_CHECKPOINT are there again when it is tried again.\n"
    "\n"
    "The run is a process of its own: it goes on when this terminal closes. Ctrl-C\n"
    "asks whether to stop it or to leave it running.\n"
    "\n"
    "Exit status: 0 all done (or detached), 1 a trial or the run failed, 2 it was\n"
    "asked for something that cannot be, 130 stopped by Ctrl-C.";

static const char run_examples[] =
    "hopyard run --grid lr=0.001,0.0005 --grid dropout=0.45,0.7 --max accuracy \\\n"
    "    --parallel 2 -- ./train --lr {lr} --dropout {dropout}\n"
    "hopyard run --random 50 --space lr=log:1e-5..1e-1 --space layers=1..4 \\\n"
    "    --min loss --memory 4G --timeout 1h -- python3 train.py {lr} {layers}\n"
    "hopyard run --evolve --population 10 --generations 10 --space x=-5.0..5.0 \\\n"
    "    --min f --hosts a:4,b:2 --name sphere --detach -- ./sphere {x}";

static const char train_about[] =
    "Starts a program N times, as the ranks of one training, which find each other by\n"
    "`import hopyard.hvd as hvd`, or horovod.tensorflow. All of them run at the same\n"
    "time, on this machine or on those of -H; when one fails all are ended, unless\n"
    "the training is elastic (--min-np). A program that knows nothing of ranks runs\n"
    "N times, too.\n"
    "\n"
    "In a terminal a table shows how the ranks do, and above it stands what rank 0\n"
    "prints; in a pipe each line has its rank before it. `hopyard logs RUN 3` shows\n"
    "what rank 3 has printed.\n"
    "\n"
    "Options of horovodrun are understood; what means nothing here is said in a line.\n"
    "\n"
    "Exit status: 0 all ranks ended well (or detached), 1 one failed, 2 it was asked\n"
    "for something that cannot be, 130 stopped by Ctrl-C.";

static const char train_examples[] = "hopyard train -np 4 python train.py --epochs 3\n"
                                     "hopyard train -np 4 -H a:2,b:2 --gpus 1 -- python train.py\n"
                                     "hopyard train -np 4 --min-np 2 -H a:2,b:2 python elastic.py\n"
                                     "hopyard train --scaling -np 8 python train.py";

static const char logs_about[] =
    "Prints what trials have printed, from the files in the run's log folder. For one\n"
    "trial the bytes are as they were; for all trials each line begins with the\n"
    "trial's number. In a terminal odd bytes are escaped.\n"
    "\n"
    "Of a training TRIAL is a rank, from 0 on: 3, or rank=3, which does without RUN.\n"
    "Of a cluster it is a node: worker-0, or node=worker-0, which does without RUN.";

static const char tensorboard_about[] =
    "Starts TensorBoard on a run's log folder, or on any folder, and prints its\n"
    "address first, before TensorBoard is there; that takes some seconds. While the\n"
    "run lasts, those who watch it see the address, too. Ctrl-C ends it.\n"
    "\n"
    "A number is a run, ./3 a folder; a name is a folder where there is one of that\n"
    "name, otherwise a run.\n"
    "\n"
    "It listens on 127.0.0.1 only, is nice to other processes, and uses no GPU. It is\n"
    "the TensorBoard of the python that a run's function was given with; for others\n"
    "that of $HOPYARD_PYTHON, or what PATH has. From another machine, by ssh:\n"
    "ssh -L 6006:127.0.0.1:6006 HOST hopyard tensorboard --port 6006";

static const char gc_about[] =
    "Cleans up on this machine after processes that were killed: trials of this\n"
    "project whose agent is gone, and sockets that nobody listens on. With --all\n"
    "also those of your other projects, and MPS daemons for shares of a GPU that\n"
    "nobody uses. What is in use is left alone. Says what it would do, and asks.";

#define RUNNING "Running"
#define LOOKING "Looking"
#define FILES "Files"
#define TIDYING "Tidying up"
#define INSIDE "On other machines and inside trials"

const struct hy_command hy_commands[] = {
    {.name = "run",
     .group = RUNNING,
     .words = "[OPTIONS] -- COMMAND…",
     .options = run_options,
     .max_words = 0,
     .takes_rest = true,
     .run = hy_cmd_run,
     .summary = "run a command over many parameters",
     .about = run_about,
     .examples = run_examples},
    {.name = "train",
     .group = RUNNING,
     .words = "-np N [OPTIONS] [--] COMMAND…",
     .options = hy_train_options,
     .takes_rest = true,
     .bare_rest = true,
     .run = hy_cmd_train,
     .summary = "run a program as the ranks of one training (also: horovodrun)",
     .about = train_about,
     .examples = train_examples},
    {.name = "horovodrun",
     .words = "-np N [OPTIONS] [--] COMMAND…",
     .options = hy_train_options,
     .takes_rest = true,
     .bare_rest = true,
     .owns = true,
     .run = hy_cmd_train,
     .summary = "'hopyard train', whose ranks end with the command",
     .about = train_about,
     .examples = train_examples},
    {.name = "attach",
     .group = RUNNING,
     .words = "[RUN]",
     .options = attach_options,
     .max_words = 1,
     .run = hy_cmd_attach,
     .summary = "watch a run again",
     .examples = "hopyard attach\nhopyard attach digits"},
    {.name = "stop",
     .group = RUNNING,
     .words = "[RUN]",
     .options = stop_options,
     .max_words = 1,
     .run = hy_cmd_stop,
     .summary = "end a run and its trials",
     .examples = "hopyard stop 3"},
    {.name = "resume",
     .group = RUNNING,
     .words = "[RUN]",
     .options = resume_options,
     .max_words = 1,
     .run = hy_cmd_resume,
     .summary = "go on with a run that was stopped, killed, or has failed trials",
     .about = "What has ended well stays; everything else runs again. The search goes on as if\n"
              "nothing had happened.",
     .examples = "hopyard resume 3\nhopyard resume digits --detach"},
    {.name = "ls",
     .group = LOOKING,
     .words = "",
     .options = json_options,
     .run = hy_cmd_ls,
     .summary = "list the project's runs"},
    {.name = "show",
     .group = LOOKING,
     .words = "[RUN]",
     .options = show_options,
     .max_words = 1,
     .run = hy_cmd_show,
     .summary = "everything about a run",
     .examples = "hopyard show\nhopyard show digits --trials all\nhopyard show 3 --json"},
    {.name = "best",
     .group = LOOKING,
     .words = "[RUN]",
     .options = json_options,
     .max_words = 1,
     .run = hy_cmd_best,
     .summary = "a run's best trial",
     .examples = "hopyard best 3 --json"},
    {.name = "logs",
     .group = LOOKING,
     .words = "[RUN] [TRIAL]",
     .options = logs_options,
     .max_words = 2,
     .run = hy_cmd_logs,
     .summary = "what trials have printed",
     .about = logs_about,
     .examples =
         "hopyard logs 3 7\nhopyard logs -f\nhopyard logs digits 12 --stderr\nhopyard logs rank=0 -f"},
    {.name = "tensorboard",
     .group = LOOKING,
     .words = "[RUN|PATH]",
     .options = tensorboard_options,
     .max_words = 1,
     .run = hy_cmd_tensorboard,
     .summary = "a run's curves and hyperparameters, in the browser",
     .about = tensorboard_about,
     .examples =
         "hopyard tensorboard\nhopyard tensorboard 3 --port 6006\nhopyard tensorboard Logs/TensorFlow"},
    {.name = "fs",
     .group = FILES,
     .words = "COMMAND PATH…",
     .raw = hy_fs_main,
     .summary = "files of this machine and of HDFS: ls, cat, put, get, cp, mv, rm, …"},
    {.name = "records",
     .group = FILES,
     .words = "COMMAND FILE…",
     .raw = hy_records_main,
     .summary = "what is in files of TFRecords: head, count, schema, verify"},
    {.name = "rm",
     .group = TIDYING,
     .words = "RUN…",
     .options = rm_options,
     .min_words = 1,
     .max_words = -1,
     .run = hy_cmd_rm,
     .summary = "remove runs with their logs",
     .examples = "hopyard rm 3 4\nhopyard rm -f digits"},
    {.name = "gc",
     .group = TIDYING,
     .words = "",
     .options = gc_options,
     .run = hy_cmd_gc,
     .summary = "clean up after processes that were killed",
     .about = gc_about},
    {.name = "import",
     .group = TIDYING,
     .words = "PATH...",
     .min_words = 1,
     .max_words = -1,
     .run = hy_cmd_import,
     .summary = "add the runs of snapshots (run.db) to the store",
     .examples = "hopyard import Logs/TensorFlow/local-20261115-043012/1/run.db\n"
                 "hopyard import .hopyard/runs/*.db"},
    {.name = "agent",
     .group = INSIDE,
     .words = "--join HOST:PORT --key-file FILE",
     .raw = hy_agent_main,
     .summary = "lend this machine to a run"},
    {.name = "report",
     .group = INSIDE,
     .words = "NAME=VALUE…",
     .raw = hy_report_main,
     .summary = "from inside a trial: stream values while it trains"},
    {.name = "supply",
     .words = "RUN",
     .options = supply_options,
     .min_words = 1,
     .max_words = 1,
     .run = hy_cmd_supply,
     .summary = "between a run and a program that starts its agents"},
    {.name = "driver", .words = "", .raw = hy_driver_main, .summary = "what run and resume start"},
    {.name = "version", .group = NULL, .words = "", .run = hy_cmd_version, .summary = "print the version"},
    {.name = "help",
     .group = NULL,
     .words = "[COMMAND]",
     .max_words = 1,
     .run = hy_cmd_help,
     .summary = "explain a command"},
    {0},
};

const struct hy_command *hy_command_find(const char *name)
{
    for (const struct hy_command *c = hy_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
