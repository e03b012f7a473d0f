/* Frames from the manager: the check, then the Thrift library's decoder. What passes must read back as sane values. */
#include "daemon/link_codec.h"

#include <stdlib.h>
#include <string.h>

static void use(const char *text) {
    if (!text || strlen(text) > RS_LINK_TEXT_MAX)
        abort();
}

static void deliver(void *context, const rs_link_message *message) {
    ++*(unsigned *)context;
    if (message->call != RS_LINK_CALL_RESPONSE) {
        use(message->id);
        use(message->reason);
        return;
    }
    const rs_link_response *r = &message->response;
    use(r->request_id);
    use(r->response_id);
    use(r->reason);
    if (r->decision == RS_LINK_ACCEPTED && (r->data_port == 0 || r->group >> 28 != 14 || r->receiver_count > 1024))
        abort();
    for (uint32_t i = 0; i < r->receiver_count; i++)
        use(r->receivers[i].server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned delivered = 0;
    char words[160] = "";
    bool ok = rs_link_decode(data, size, deliver, &delivered, words, sizeof words);
    if (delivered != (ok ? 1 : 0) || (!ok && !words[0]))
        abort();
    return 0;
}
