/* Two ends of a packet I/O, an object of numbered fragments that goes from one to the other, and its image. */
#ifndef TESTS_AGENT_IO_FIXTURE_H
#define TESTS_AGENT_IO_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/io.h"

#define FRAGMENT 1408u
#define FRAGMENTS 400u
#define LAST 333u /* bytes of the last fragment */
#define OBJECT ((FRAGMENTS - 1) * FRAGMENT + LAST)
#define WAIT_MS 5000
#define GROUP 7 /* the number the group is joined by */

typedef struct {
    rs_io *out, *in;
    uint32_t group;
    uint16_t port;
    uint8_t sent[OBJECT], got[OBJECT + 64];
    bool present[FRAGMENTS];
    unsigned next;                          /* the sn expected */
    unsigned delivered, header_bytes_short; /* datagrams, and those shorter than a header */
    bool blind;                             /* no predictions */
} io_fixture;

/* Can be tested over real interfaces. Without the kernel's netmap module test_io_netmap.c stands for that one. */
bool io_backend_is_here(const rs_io_ops *ops);

/* A fixture with a group of its own and nothing open. */
io_fixture *io_fixture_new(void);
void io_fixture_free(io_fixture *f);
void io_fixture_log(void *context, rs_io_log_level level, const char *text);

/* Fails with the reason. */
void io_fixture_open(io_fixture *f, const char *out, const rs_io_options *out_options, const char *in,
                     const rs_io_options *in_options);

/* The same, but skips the test where there is no network for it or a back end does not work, with the reason. */
void io_fixture_open_or_skip(io_fixture *f, const char *out, const rs_io_options *out_options, const char *in,
                             const rs_io_options *in_options);

/* Moves this process to a private network namespace with a pair of virtual interfaces of MTU 9000: va, 10.77.1.1, and
 * vb, 10.77.1.2. */
void io_veth_make(void);
extern const rs_io_options io_veth_from, io_veth_to;

/* The next random number, from a seed that is printed once and may be given in ROSTRUM_TEST_SEED. */
unsigned io_draw(unsigned below);

uint32_t io_fragment_length(unsigned sn);
/* Fills a packet that carries fragment sn; `header` has RS_IO_HEADER_BYTES. */
rs_io_packet io_fragment_packet(const io_fixture *f, unsigned sn, uint8_t *header);

void io_send_all(rs_io *io, const rs_io_packet *packets, unsigned count);
void io_send_fragments(io_fixture *f, const unsigned *sns, unsigned count);
rs_io_sink io_fixture_sink(io_fixture *f);
/* Waits for that many datagrams, reading at most `limit` at a time. */
void io_receive(io_fixture *f, unsigned count, unsigned limit);
/* Every present fragment is the sent one, and nothing was written behind the object. */
void io_check_image(const io_fixture *f);
/* Losses, strays, doubles and reordering. */
void io_random_traffic(io_fixture *f);

#endif
