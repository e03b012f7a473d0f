/* Messages of the application socket, both ways. The first byte chooses: a request (as the agent parses it) or an
 * answer (as librostrum does). A request that is accepted must be encoded to the same bytes again. */
#include "api/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rs_api_request request;
static rs_api_message message;
static rs_api_answer answer;

static void parse_request(const uint8_t *data, size_t size) {
    rs_error error;
    if (!rs_api_parse_request(data, size, &request, &error)) {
        if (!error.text[0] || !error.code)
            abort();
        return;
    }
    if (!rs_api_encode_request(&request, &message, &error) || message.length != size ||
        memcmp(message.data, data, size) != 0)
        abort();
}

static void parse_answer(const uint8_t *data, size_t size) {
    rs_error error;
    rostrum_receiver receiver;
    rostrum_transfer transfer;
    rostrum_object object;
    rostrum_group_status group;
    if (!rs_api_parse_answer(data, size, &answer, &error))
        return;
    if (answer.type == RS_API_RECEIVERS)
        while (rs_api_next_receiver(&answer, &receiver))
            ;
    if (answer.type == RS_API_TRANSFERS)
        while (rs_api_next_transfer(&answer, &transfer))
            ;
    if (answer.type == RS_API_OBJECTS)
        while (rs_api_next_object(&answer, &object))
            ;
    if (answer.type == RS_API_GROUPS)
        while (rs_api_next_group(&answer, &group))
            ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    /* A copy of exactly that size, so that reading one byte too many is seen. */
    uint8_t *copy = malloc(size - 1 ? size - 1 : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 2)
        parse_answer(copy, size - 1);
    else
        parse_request(copy, size - 1);
    free(copy);
    return 0;
}
