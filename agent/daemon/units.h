/* Sizes, rates, durations and addresses as people write them on a command line. */
#ifndef RS_DAEMON_UNITS_H
#define RS_DAEMON_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/types.h"

/* "4096", "64K", "4G", "1.5GiB": powers of 1024. */
bool rs_parse_bytes(const char *text, uint64_t *out);
/* "1G", "2.5G", "100M", "10Gbit": bits/s, powers of 1000. */
bool rs_parse_rate(const char *text, int64_t *out_bps);
/* "70ms", "1.4ms", "500us", "2s", "20ns": the unit is needed (0 needs none). */
bool rs_parse_duration(const char *text, rs_time *out);
/* Digits only, from `low` to `high`. */
bool rs_parse_integer(const char *text, uint64_t low, uint64_t high, uint64_t *out);
/* Dotted IPv4, to host order. */
bool rs_parse_address(const char *text, uint32_t *out);
/* "10.255.0.1:9090". */
bool rs_parse_endpoint(const char *text, uint32_t *address, uint16_t *port);

#define RS_ADDRESS_TEXT 16
/* Writes dotted IPv4, returns `out`. */
const char *rs_address_text(uint32_t address, char out[RS_ADDRESS_TEXT]);

#endif
