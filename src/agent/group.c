/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relays messages between the driver and the ranks of a training on this machine.
 *
 * A rank joins on the socket of `hopyard report` and keeps the connection open, on which it receives the roster when
 * all ranks have joined, and later the loss of a rank. The agent decides nothing. It creates the memory that its ranks
 * share (one memfd for each generation, which they open through /proc), reports the death of a rank at once, and drops
 * messages for an earlier join of a rank: one that joins again waits for a new roster.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/trial.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/wire.h"

/* ---- from a rank to the driver ------------------------------------------------------- */

static void forward(struct trial *t, Hy__GroupWord *word)
{
    Hy__Control m = HY__CONTROL__INIT;

    word->trial = t->number;
    word->attempt = t->attempt;
    m.body_case = HY__CONTROL__BODY_GROUP;
    m.group = word;
    hy_agent_send(t->agent, &m);
}

static void detach(struct hy_local_conn *c)
{
    struct trial *t = hy_local_data(c);

    hy_local_set_data(c, NULL);
    if (t && t->member.conn == c)
        t->member.conn = NULL;
    if (t && t->member.node == c)
        t->member.node = NULL;
}

/* The newest connection counts: a rank that joins again has a new one. */
static void attach(struct trial *t, struct hy_local_conn **place, struct hy_local_conn *c)
{
    struct hy_local_conn *old = *place;

    if (old == c)
        return;
    if (old) {
        detach(old);
        hy_local_end(old);
    }
    detach(c);
    hy_local_set_data(c, t);
    *place = c;
}

static bool are_valid_addresses(char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) > HY_RANK_ADDRESS_LIMIT)
            return false;
    return n <= HY_RANK_ADDRESSES_LIMIT;
}

static bool is_valid_join(const Hy__GroupJoin *join)
{
    return join->port <= UINT16_MAX && strlen(join->bell) < sizeof((struct member *)0)->bell &&
           are_valid_addresses(join->addresses, join->n_addresses);
}

/* A child process calls init while the rank itself is in the group. */
static bool is_joined_by_another(const struct member *m, const struct hy_local_conn *c)
{
    pid_t first = m->conn && !m->left ? hy_local_pid(m->conn) : 0;

    return first && first != hy_local_pid(c) && kill(first, 0) == 0;
}

static const char *join(struct trial *t, struct hy_local_conn *c, const Hy__GroupJoin *join)
{
    struct member *m = &t->member;

    if (is_joined_by_another(m, c))
        return "another process of this rank is in the group already: call init in one of them only";

    if (!is_valid_join(join))
        return "invalid request to join a group";
    attach(t, &m->conn, c);
    m->generation = 0;
    m->port = join->port;
    snprintf(m->bell, sizeof m->bell, "%s", join->bell);
    m->joined = true;
    m->left = false;
    return "";
}

static const char *join_as_node(struct trial *t, struct hy_local_conn *c, const Hy__NodeJoin *join)
{
    if (join->port > UINT16_MAX || !are_valid_addresses(join->addresses, join->n_addresses))
        return "invalid request to join a cluster";
    if (t->member.node)
        return "another process of this node has joined the cluster already";
    attach(t, &t->member.node, c);
    return "";
}

const char *hy_agent_group_receive(struct trial *t, struct hy_local_conn *c, Hy__GroupWord *word)
{
    const char *refused = "";

    if (word->body_case == HY__GROUP_WORD__BODY_JOIN)
        refused = join(t, c, word->join);
    else if (word->body_case == HY__GROUP_WORD__BODY_NODE)
        refused = join_as_node(t, c, word->node);
    else if (word->body_case == HY__GROUP_WORD__BODY_LEAVE)
        t->member.left = true;
    else if (word->body_case != HY__GROUP_WORD__BODY_NOTE && word->body_case != HY__GROUP_WORD__BODY_FAILED &&
             word->body_case != HY__GROUP_WORD__BODY_MISSED && word->body_case != HY__GROUP_WORD__BODY_SERVES &&
             word->body_case != HY__GROUP_WORD__BODY_DONE)
        refused = "unexpected message: a rank can join, leave or send a note";
    if (!*refused)
        forward(t, word);
    return refused;
}

void hy_agent_group_disconnected(struct hy_local_conn *c)
{
    detach(c);
}

static void close_conn(struct hy_local_conn *c)
{
    if (!c)
        return;
    detach(c);
    hy_local_end(c);
}

void hy_agent_group_forget(struct trial *t)
{
    close_conn(t->member.conn);
    close_conn(t->member.node);
}

/* ---- death of a rank -------------------------------------------------------------------- */

static void describe(const struct trial *t, const struct hy_process_end *end, char *text, size_t size)
{
    if (*end->message)
        snprintf(text, size, "was %s", end->message);
    else if (end->outcome == HY_PROCESS_SIGNALED)
        snprintf(text, size, "was ended by signal %d (%s)", end->code, strsignal(end->code));
    else if (end->code && t->said)
        snprintf(text, size, "failed: %s", t->said);
    else if (end->code)
        snprintf(text, size, "ended with exit status %d", end->code);
    else
        snprintf(text, size, "ended (exit status 0) while the others were still training");
}

/* Whether other ranks or nodes depend on it. */
static bool is_member(const struct trial *t)
{
    const Hy__Start *s = t->start->start;

    for (size_t i = 0; i < s->n_env; i++)
        if (strcmp(s->env[i], "HOPYARD_GROUP=1") == 0 || strncmp(s->env[i], "HOPYARD_NODE=", 13) == 0)
            return true;
    return false;
}

/* Ended is sent when its descendants are gone and its files are transferred: too late for ranks that wait for it. */
void hy_agent_group_died(struct trial *t, const struct hy_process_end *end)
{
    bool well = end->outcome == HY_PROCESS_EXITED && end->code == 0;
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupLost lost = HY__GROUP_LOST__INIT;
    char why[700];

    if (!is_member(t) || end->outcome == HY_PROCESS_KILLED || (well && (t->member.left || !t->member.joined)))
        return;
    describe(t, end, why, sizeof why);
    lost.generation = t->member.generation;
    lost.why = why;
    word.body_case = HY__GROUP_WORD__BODY_LOST;
    word.lost = &lost;
    forward(t, &word);
}

/* ---- shared memory -------------------------------------------------------------------- */

static void close_shared_memory(struct agent *a)
{
    if (a->shared.fd >= 0)
        close(a->shared.fd);
    a->shared.fd = -1;
    a->shared.generation = 0;
}

/* Empty: the ranks set its size and seal it, so that the agent need not know its layout. */
static int open_shared_memory(struct agent *a, uint64_t generation, unsigned ranks, struct hy_err *err)
{
    if (a->shared.fd >= 0 && a->shared.generation == generation)
        return 0;
    close_shared_memory(a);
    a->shared.fd = HY_SYS(memfd_create("hopyard-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (a->shared.fd < 0)
        return hy_err_sys(err, -errno, "cannot create the memory that %u ranks share", ranks);
    a->shared.generation = generation;
    return 0;
}

void hy_agent_group_done(struct agent *a)
{
    close_shared_memory(a);
}

/* ---- from the driver to a rank ------------------------------------------------------------ */

/* A rank that has disconnected is about to end, or joins again. */
static void send_word(struct trial *t, struct hy_local_conn *c, Hy__GroupWord *word)
{
    Hy__TrialReportAnswer answer = HY__TRIAL_REPORT_ANSWER__INIT;
    hy_cleanup_free uint8_t *bytes = NULL;
    int rc;

    answer.group = word;
    bytes = hy_malloc(hy__trial_report_answer__get_packed_size(&answer));
    if (!bytes) {
        hy_agent_end(t->agent, 1, "out of memory");
        return;
    }
    rc = hy_local_send(c, bytes, hy__trial_report_answer__pack(&answer, bytes));
    if (rc < 0)
        hy_info_limited("cannot send to a rank trial=%llu error=%s", (unsigned long long)t->number, strerror(-rc));
}

static void send_failure(struct trial *t, const Hy__Roster *r, const struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupLost lost = HY__GROUP_LOST__INIT;

    lost.generation = r->generation;
    lost.rank = r->rank;
    lost.why = (char *)err->text;
    word.trial = t->number;
    word.attempt = t->attempt;
    word.body_case = HY__GROUP_WORD__BODY_LOST;
    word.lost = &lost;
    send_word(t, t->member.conn, &word);
}

/* Whether it answers the current join, not an earlier one. */
static bool answers_join(const struct trial *t, const Hy__Roster *r)
{
    const Hy__GroupMember *self = r->rank < r->n_members ? r->members[r->rank] : NULL;

    return self && self->trial == t->number && self->port == t->member.port && strcmp(self->bell, t->member.bell) == 0;
}

static unsigned count_local_ranks(const Hy__Roster *r)
{
    unsigned count = 0;

    for (size_t i = 0; i < r->n_members; i++)
        count += r->members[i]->host == r->members[r->rank]->host;
    return count;
}

static void send_roster(struct trial *t, const Hy__GroupWord *word)
{
    Hy__Roster roster = *word->roster;
    Hy__GroupWord copy = *word;
    unsigned here = count_local_ranks(&roster);
    struct hy_err err = {0};
    char path[64];

    t->member.generation = roster.generation;
    if (here > 1 && open_shared_memory(t->agent, roster.generation, here, &err) < 0) {
        hy_error("%s", err.text);
        send_failure(t, &roster, &err);
        return;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), t->agent->shared.fd);
    roster.shared = here > 1 ? path : (char *)protobuf_c_empty_string;
    copy.roster = &roster;
    send_word(t, t->member.conn, &copy);
}

/* Only messages for the generation that it is in, or waits for. */
static bool is_current(const struct trial *t, const Hy__GroupWord *word)
{
    const struct member *m = &t->member;

    switch (word->body_case) {
    case HY__GROUP_WORD__BODY_ROSTER:
        return m->generation == 0 && answers_join(t, word->roster);
    case HY__GROUP_WORD__BODY_LOST:
        return m->generation == word->lost->generation;
    case HY__GROUP_WORD__BODY_OUTDATED:
        return m->generation != 0;
    default:
        return false;
    }
}

static bool is_for_a_node(const Hy__GroupWord *word)
{
    return word->body_case == HY__GROUP_WORD__BODY_NODES || word->body_case == HY__GROUP_WORD__BODY_FED ||
           word->body_case == HY__GROUP_WORD__BODY_DONE;
}

/* All nodes have joined, and this one computes: tasks that feed it need the slot from which it was started. Other nodes
 * keep their slots, so that no rows are fed to a node that does not read them. */
static bool reads_rows(const Hy__GroupWord *word)
{
    const Hy__Nodes *all = word->body_case == HY__GROUP_WORD__BODY_NODES ? word->nodes : NULL;

    return all && all->self < all->n_nodes && hy_role_has_rank(all->nodes[all->self]->role);
}

void hy_agent_group_deliver(struct agent *a, const Hy__GroupWord *word)
{
    struct trial *t = hy_map_get(&a->trials, hy_agent_trial_key(word->trial, word->attempt));
    Hy__GroupWord copy = *word;

    if (reads_rows(word))
        hy_agent_detach(a);
    if (t && t->member.node && is_for_a_node(word))
        send_word(t, t->member.node, &copy);
    else if (!t || !t->member.conn || !is_current(t, word))
        hy_info_limited("dropped a group message without a recipient trial=%llu attempt=%u kind=%d",
                        (unsigned long long)word->trial, word->attempt, (int)word->body_case);
    else if (word->body_case == HY__GROUP_WORD__BODY_ROSTER)
        send_roster(t, word);
    else
        send_word(t, t->member.conn, &copy);
}
