/* Repairs a leak of the Thrift library: its own and its generated classes' finalizers do not call their parent's, so
 * each object loses what GObject itself keeps for it (32 bytes or more with GLib 2.74). */
#ifndef RS_DAEMON_LINK_GOBJECT_H
#define RS_DAEMON_LINK_GOBJECT_H

#include <glib-object.h>

/* Before the first object is made: repairs the classes that reading and writing calls use. Further calls do nothing. */
void rs_link_gobject_repair(void);
/* The same for one more class. */
void rs_link_gobject_repair_class(GType type);

#endif
