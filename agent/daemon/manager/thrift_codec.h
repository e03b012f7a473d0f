/* Calls of the agent-manager interface as frames and as C structs: Thrift's binary protocol, oneway calls only.
 *
 * What the structs and calls are is stated once, in controller/rostrum.thrift; thrift_generate.py makes from it, at
 * build time, the C types and the tables (thrift_schema.h, .c) that this codec walks. Bytes of a frame are not trusted:
 * lengths lie within the frame, known fields have the right type and come once, required ones are there, texts are
 * UTF-8 without NUL and within their bounds, lists within theirs, nesting is bounded, nothing stands behind the end.
 * Unknown fields and calls pass if they are well formed: a newer peer may say more.
 *
 * How IDL types look in C:
 *   bool, i32, i64, enum    bool, int32_t, int64_t, int32_t; optional ones have a bool `has_<name>` before them
 *   string                  const char *, NUL-terminated; NULL: an optional one that is absent
 *   binary                  rs_thrift_bytes
 *   struct                  the struct itself; an optional one is a pointer, NULL: absent
 *   list<...>               rs_thrift_list of const char *, int32_t or structs; optional ones have `has_<name>` */
#ifndef RS_DAEMON_MANAGER_THRIFT_CODEC_H
#define RS_DAEMON_MANAGER_THRIFT_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RS_THRIFT_TEXT_SIZE 160 /* bytes of what an error says, with its NUL */

typedef struct {
    const uint8_t *bytes;
    size_t length;
} rs_thrift_bytes;

/* `items`: const char *const *, const int32_t * or an array of the element's struct. */
typedef struct {
    const void *items;
    uint32_t count;
} rs_thrift_list;

/* Types of the binary protocol. */
typedef enum {
    RS_THRIFT_BOOL = 2,
    RS_THRIFT_I32 = 8,
    RS_THRIFT_I64 = 10,
    RS_THRIFT_STRING = 11,
    RS_THRIFT_STRUCT = 12,
    RS_THRIFT_LIST = 15
} rs_thrift_type;

typedef struct rs_thrift_struct rs_thrift_struct;

typedef struct {
    int16_t id;
    uint8_t type;    /* rs_thrift_type */
    uint8_t element; /* of a list: rs_thrift_type of its elements */
    bool required;
    bool is_binary;    /* of a string: bytes that need not be text */
    size_t offset;     /* of the value in its struct */
    size_t has;        /* of `has_<name>`; SIZE_MAX: there is none */
    uint32_t max;      /* bytes of a text, elements of a list, highest value of an enumeration (from 1); 0: any */
    uint32_t text_max; /* of a list of texts: bytes of each */
    const rs_thrift_struct *shape; /* of a struct, or of a list's structs */
} rs_thrift_field;

struct rs_thrift_struct {
    const char *name;
    size_t size; /* bytes of the C struct */
    size_t count;
    const rs_thrift_field *fields;
};

/* A service's calls; the number of a call is its place. Each shape holds the call's arguments. */
typedef struct {
    uint32_t count;
    const rs_thrift_struct *calls;
} rs_thrift_service;

typedef struct rs_thrift_memory rs_thrift_memory;

/* A decoded call. */
typedef struct {
    uint32_t call;    /* place in the service; its `count`: a call that is not known here, to be ignored */
    const void *args; /* its arguments' struct; holds until rs_thrift_call_free. NULL: of an unknown call */
    rs_thrift_memory *memory;
} rs_thrift_call;

/* Decodes a frame without its length prefix. False: it is malformed or beyond a bound, or out of memory; `text` says
 * what is wrong and at which byte, and there is nothing to free. */
bool rs_thrift_decode(const rs_thrift_service *service, const uint8_t *frame, size_t length, rs_thrift_call *out,
                      char text[RS_THRIFT_TEXT_SIZE]);
void rs_thrift_call_free(rs_thrift_call *call);

typedef enum {
    RS_THRIFT_OK,
    RS_THRIFT_INVALID, /* a text is missing, too long or not UTF-8, a list too long, a value out of its enumeration */
    RS_THRIFT_TOO_LONG,
    RS_THRIFT_NO_MEMORY
} rs_thrift_status;

/* A frame with its 4-byte length prefix, from malloc, of at most `frame_max` bytes behind the prefix. `bytes` and
 * `length` are set with RS_THRIFT_OK only. */
rs_thrift_status rs_thrift_encode(const rs_thrift_service *service, uint32_t call, const void *args, size_t frame_max,
                                  uint8_t **bytes, size_t *length);

/* Bytes that the struct's fields would take in a frame; 0: it is invalid. */
size_t rs_thrift_size(const rs_thrift_struct *shape, const void *value);

/* Valid UTF-8 without NUL, at most `max` bytes. */
bool rs_thrift_text_ok(const uint8_t *text, size_t length, size_t max);

#endif
