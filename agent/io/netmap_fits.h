/* Whether `auto` takes netmap: only where its module drives the NIC itself, and other traffic passes unharmed. */
#ifndef RS_IO_NETMAP_FITS_H
#define RS_IO_NETMAP_FITS_H

#include "io/io.h"

/* Whether `auto` takes it for that interface, if it opens; `sys`: where sysfs is. False with the reason in `error`. */
bool rs_netmap_fits(const char *sys, const char *interface, char *error);
/* The kernel's stack leaves checksums of what it sends there undone. */
bool rs_netmap_offloads(const char *interface);

#endif
