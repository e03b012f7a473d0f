/* Republic's operations (docs/republic.md), for its row in the table of engines. */
#ifndef RS_CORE_REPUBLIC_REPUBLIC_H
#define RS_CORE_REPUBLIC_REPUBLIC_H

#include "core/feedback/report.h"
#include "core/transfer/engine.h"

extern const rs_engine rs_engine_republic;

/* Attempt sending, high rate, the stop rule: sender.c */
const char *rs_republic_path_granted(rs_node *node, rs_time now, rs_sending *x);
void rs_republic_advance(rs_node *node, rs_time now, rs_sending *x); /* a light, an answer, the position has changed */
void rs_republic_lit(rs_time now, rs_sending *x);
void rs_republic_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
rs_time rs_republic_sender_due(const rs_sending *x);
void rs_republic_sender_news(rs_node *node, rs_time now, rs_sending *x, const rs_news *news);
void rs_republic_sender_stop(rs_node *node, rs_sending *x);

/* sender.c: the data channel */
void rs_republic_schedule(rs_node *node, rs_time now, rs_sending *x); /* among the ready, or its timer is set */
bool rs_republic_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);

/* sender.c: messages */
rs_rx_verdict rs_republic_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r,
                                         const rs_message *m);

/* republic/receiver.c */
bool rs_republic_begin(rs_node *node, rs_time now, rs_receiving *x);
rs_rx_result rs_republic_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                              const rs_packet_in *packet);
void rs_republic_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
void rs_republic_connected(rs_node *node, rs_time now, rs_receiving *x);
void rs_republic_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_republic_receiver_due(const rs_receiving *x);
void rs_republic_check_complete(rs_node *node, rs_time now, rs_receiving *x); /* if it is */
bool rs_republic_say(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);

/* The path is not needed any more; `whole`: nobody misses anything, as far as is known. */
void rs_sender_data_over(rs_node *node, rs_time now, rs_sending *x, bool complete);

rs_rx_result rs_republic_store(rs_node *node, rs_receiving *x, uint64_t sn);

/* receiver.c: what is missing, and asking for it */
void rs_request_repair(rs_node *node, rs_time now, rs_receiving *x, uint64_t from, uint64_t to);
void rs_request_repair_between(rs_node *node, rs_time now, rs_receiving *x, uint64_t after,
                               uint64_t before);                   /* excluded, going around */
void rs_request_tail(rs_node *node, rs_time now, rs_receiving *x); /* tail_due is here */
void rs_request_schedule(rs_node *node, rs_time now, rs_receiving *x);
void rs_request_answered(rs_receiving *x, uint64_t sn);
uint32_t rs_due_ranges(const rs_receiving *x, rs_range out[3]); /* where what is not here should be, in order */
void rs_request_restart(rs_node *node, rs_time now, rs_receiving *x, rs_asks how); /* forgets what was asked for */
void rs_request_repeat(rs_node *node, rs_time now,
                       rs_receiving *x); /* requests or patches may be lost: once more for all that is due */
bool rs_next_request(rs_time now, rs_receiving *x, rs_message *m);
/* The same, as ranges of the object for the one it reports to; returns how many. */
uint32_t rs_next_ranges(rs_time now, rs_receiving *x, rs_range *out, uint32_t most);

#define RS_TAIL_LATEST (250 * RS_MS) /* after DATA_FNSD what is missing is asked for, even while data packets come */
#define RS_SILENT (100 * RS_MS)      /* who reports nothing for so long holds nobody back: patches are for it */
#define RS_QUIET_REPORTS 2           /* feedback intervals between two reports when nothing is wrong */

/* window.c: how far the data channel runs ahead */
void rs_window_start(rs_sending *x, rs_time now);                    /* high rate begins */
uint64_t rs_window_room(const rs_sending *x, const rs_recipient *r); /* half of what may wait at it, in packets */
uint64_t rs_window_of(const rs_sending *x, const rs_recipient *r);   /* packets that may be under way to it */
void rs_window_seen(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t pos);
void rs_window_recompute(rs_node *node, rs_time now, rs_sending *x); /* others count than before */
void rs_window_on_receiver_removed(rs_node *node, rs_time now, rs_sending *x,
                                   const rs_recipient *r); /* done, failed or out of reach */
rs_time rs_window_due(rs_sending *x,
                      rs_time now); /* when the next data packet may go, as far as receivers are concerned */

/* repair_sender.c: repairs by multicast */
void rs_repair_begin_session(rs_node *node, rs_sending *x);
void rs_repair_high_rate(rs_sending *x);
void rs_repair_asked(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t from, uint64_t to);
rs_rx_verdict rs_on_ptch_map(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
void rs_repair_on_receiver_removed(rs_time now, rs_sending *x,
                                   const rs_recipient *r); /* done, failed, its connection down */
bool rs_repair_poll(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);
void rs_repair_data_sent(rs_sending *x);
bool rs_repair_tail(rs_node *node, rs_time now,
                    rs_sending *x); /* the round is over; true: rs_sender_data_over follows */
bool rs_repair_tail_sends(const rs_sending *x);
void rs_repair_timeout(rs_node *node, rs_time now, rs_sending *x);
void rs_repair_end(rs_node *node, rs_sending *x);

/* repair_receiver.c: repair packets, and telling what is missing by maps */
rs_rx_result rs_receiver_repair(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
void rs_map_soon(rs_node *node, rs_time now, rs_receiving *x);
void rs_map_timeout(rs_node *node, rs_time now, rs_receiving *x);
void rs_next_map(rs_time now, rs_receiving *x, rs_message *m);

/* feedback.c: RATE both ways */
bool rs_holds_back(const rs_sending *x, const rs_recipient *r, rs_time now); /* others wait for it */
void rs_rate_recompute(rs_node *node, rs_time now, rs_sending *x);           /* others count than before */
/* A circuit carries nobody else, and the manager told its rate: there is nothing to find, and what takes longer on the
 * way waits in a busy host. Window and losses still hold the sender back where receivers are slower. */
bool rs_path_rate_is_known(const rs_sending *x);
void rs_rate_begin(rs_sending *x, rs_time now);                                             /* high rate begins */
void rs_report_own(const rs_node *node, rs_time now, const rs_receiving *x, rs_message *m); /* what it saw so far */
void rs_report_fill(const rs_node *node, rs_time now, rs_receiving *x, rs_message *m);
/* Between two reports or maps that nobody asked for; `least` if that is more. */
rs_time rs_report_least(const rs_receiving *x, rs_time least);
void rs_report_asked(rs_node *node, rs_time now, rs_receiving *x); /* by a packet */
void rs_report_soon(rs_node *node, rs_time now, rs_receiving *x);
void rs_report_activity(rs_node *node, rs_time now, rs_receiving *x);
void rs_report_timeout(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_reports_least(const rs_sending *x);  /* between two packets that ask for reports */
uint64_t rs_reports_apart(const rs_sending *x); /* packets between them */
/* A collected report, and the position of the one that is furthest behind. */
void rs_report_taken(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_report *report,
                     uint64_t least);
rs_rx_verdict rs_on_rate(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
void rs_rate_apply(rs_node *node, rs_sending *x);

/* straggler.c: those who hold the others back */
void rs_straggler_look(rs_node *node, rs_time now, rs_sending *x);
void rs_straggler_stop(rs_sending *x); /* high rate is over */

#endif
