/* Streams of api_testd: what a program sends as stream N goes to the program of this server that receives stream N. */
#ifndef API_STREAMS_H
#define API_STREAMS_H

#include "daemon/api/server.h"

typedef struct {
    rs_api_server *api;
    bool used, ends;
    rs_object_id id;
    int from, to; /* -1: not there yet */
    rs_api_call writer, reader;
    uint64_t bytes, end;
} fake_stream;

/* The one there is of that id, made if need be; NULL: too many. */
fake_stream *fake_stream_of(rs_api_server *api, const rs_object_id *id);
void fake_stream_send(rs_api_server *api, const rs_api_send *send);
void fake_stream_end(rs_api_server *api, const rs_api_call *call, const rs_object_id *id, uint64_t bytes);
void fake_stream_take(rs_api_server *api, const rs_api_take *take);
/* Moves what there is. True: a stream is there. */
bool fake_streams_tick(void);
void fake_streams_stop(void);

#endif
