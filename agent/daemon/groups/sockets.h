/* Datagrams of message groups: the sockets that multicast comes by, addresses listened at, and what goes out. */
#ifndef RS_DAEMON_GROUPS_SOCKETS_H
#define RS_DAEMON_GROUPS_SOCKETS_H

#include "daemon/groups/state.h"

/* Reads multicast that waits, before datagrams that came to this server alone are read: a repair that is read before
 * its packets takes them for missing. False: there is more of it than one turn takes; datagrams are to wait, which
 * they do for a few milliseconds at most. */
bool rs_groups_read_first(rs_groups *groups);
/* So many datagrams that came to this server alone were read; `all`: no more wait. */
void rs_groups_datagrams_read(rs_groups *groups, uint32_t count, bool all);
/* A datagram that came to this server alone, from that address. False: it is not of group messages. */
bool rs_groups_datagram(rs_groups *groups, uint32_t source, const uint8_t *bytes, size_t length);
/* Reports of receivers that did not count: of no member, or such as cannot be. */
uint64_t rs_groups_reports_refused(const rs_groups *groups);

/* Of the sockets that multicast comes by. */
rs_io_stats rs_groups_io_stats(const rs_groups *groups);
uint64_t rs_groups_socket_drops(const rs_groups *groups);

bool rs_groups_sockets_start(rs_groups *groups);
void rs_groups_sockets_stop(rs_groups *groups);
rs_time rs_groups_sockets_deadline(const rs_groups *groups);
void rs_groups_sockets_timeout(rs_groups *groups);
/* Senders are told, if programs have read on and what was missing is here. */
void rs_groups_report_held_back(rs_groups *groups);
/* Of a group in regions: its packets are the engine's, so what is given out is reported. */
void rs_groups_given(rs_groups *groups, const rs_messages_event *event);
/* RS_NO_GROUP: too many. */
rs_group rs_channel_use(rs_groups *groups, uint32_t address, uint16_t port);
void rs_channel_unuse(rs_groups *groups, rs_group channel);
void rs_channel_unuse_later(rs_groups *groups, rs_group channel); /* what is still to be sent there finds it */
bool rs_channel_listen(rs_groups *groups, rs_group channel, char *error);
/* `linger`: not at once. */
void rs_channel_ignore(rs_groups *groups, rs_group channel, bool linger);
/* What is listened at a little longer, for the longest time, is so no more. False: nothing is. */
bool rs_channel_end_linger(rs_groups *groups);
/* Who gets each packet by unicast, too; copied. */
void rs_channel_copies(rs_groups *groups, rs_group channel, const uint32_t *addresses, uint32_t count);
uint64_t rs_groups_copied(const rs_groups *groups);
/* What groups with guarantees have for others is published, or sent to one of them. True: there is more. */
bool rs_groups_send_ordered(rs_groups *groups);
bool rs_groups_send_packets(rs_groups *groups);
void rs_groups_send_to(rs_groups *groups, uint32_t address, const uint8_t *head, size_t head_length,
                       const uint8_t *rest, size_t rest_length);

#endif
