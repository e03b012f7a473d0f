#include "daemon/api/access.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/store/files.h"

/* What a request needs; RS_RIGHTS: nothing. */
static rs_right right_to_app(uint8_t type) {
    switch (type) {
    case RS_API_READ:
    case RS_API_FETCH:
    case RS_API_SUBSCRIBE:
    case RS_API_STREAM_RECEIVE:
    case RS_API_STREAM_JOIN:
        return RS_RIGHT_READ;
    case RS_API_ADD:
    case RS_API_CREATE:
    case RS_API_DROP:
    case RS_API_SEND:
    case RS_API_NAME:
    case RS_API_PIN:
    case RS_API_STREAM_SEND:
    case RS_API_STREAM_END:
        return RS_RIGHT_WRITE;
    case RS_API_DELETE:
    case RS_API_CANCEL:
    case RS_API_LEAVE:
    case RS_API_EPHEMERAL:
        return RS_RIGHT_DELETE;
    default:
        return RS_RIGHTS;
    }
}

static const char *request_name(const rs_api_request *request) {
    static const char *const names[] = {
        [RS_API_REGISTER] = "register",
        [RS_API_UNREGISTER] = "unregister",
        [RS_API_ADD] = "add",
        [RS_API_CREATE] = "create",
        [RS_API_DROP] = "drop",
        [RS_API_SEND] = "send",
        [RS_API_READ] = "read",
        [RS_API_DELETE] = "delete",
        [RS_API_SUBSCRIBE] = "events",
        [RS_API_UNSUBSCRIBE] = "unsubscribe",
        [RS_API_CANCEL] = "cancel",
        [RS_API_STREAM_SEND] = "stream-send",
        [RS_API_STREAM_END] = "stream-end",
        [RS_API_STREAM_RECEIVE] = "stream-receive",
        [RS_API_JOIN] = "publish",
        [RS_API_FETCH] = "fetch",
        [RS_API_NAME] = "name",
        [RS_API_PIN] = "pin",
        [RS_API_LEAVE] = "leave",
        [RS_API_STREAM_JOIN] = "stream-join",
        [RS_API_EPHEMERAL] = "ephemeral",
        [RS_API_CHANNELS] = "channels",
    };
    if (request->type == RS_API_JOIN && (request->flags & RS_API_JOIN_SUBSCRIBE))
        return "subscribe";
    const char *name = request->type < sizeof names / sizeof *names ? names[request->type] : NULL;
    return name ? name : "other";
}

static bool refuse(char text[ROSTRUM_TEXT_MAX + 1], const rs_api_client *client, rs_right right, const char *subject) {
    (void)snprintf(text, ROSTRUM_TEXT_MAX + 1,
                   "uid %u may not %s %s on this server: its agent's policy does not say so. Have the operator add it "
                   "to the line \"%s =\" of your user or group",
                   client->uid, right == RS_RIGHT_SEND ? "send to" : rs_right_name(right), subject,
                   rs_right_name(right));
    return false;
}

static bool is_allowed(const rs_api_server *server, const rs_api_client *client, const rs_api_request *request,
                       char text[ROSTRUM_TEXT_MAX + 1]) {
    const rs_policy *policy = server->policy;
    const rs_right right = right_to_app(request->type);
    if (!policy)
        return true;
    if (right < RS_RIGHTS && !rs_policy_allows(policy, &client->who, right, client->app)) {
        char subject[64] = "objects of application ";
        rs_store_uuid_text(client->app, subject + strlen(subject));
        return refuse(text, client, right, subject);
    }
    bool sends = request->type == RS_API_SEND || request->type == RS_API_STREAM_SEND;
    for (uint32_t i = 0; sends && i < request->receiver_count; i++)
        if (!rs_policy_allows(policy, &client->who, RS_RIGHT_SEND, request->receivers[i]))
            return refuse(text, client, RS_RIGHT_SEND, request->receivers[i]);
    if (request->type != RS_API_JOIN)
        return true;
    rs_right joins = request->flags & RS_API_JOIN_SUBSCRIBE ? RS_RIGHT_SUBSCRIBE : RS_RIGHT_PUBLISH;
    return rs_policy_allows(policy, &client->who, joins, request->group) || refuse(text, client, joins, request->group);
}

bool rs_api_may(rs_api_server *server, const rs_api_client *client, const rs_api_call *call,
                const rs_api_request *request) {
    char text[ROSTRUM_TEXT_MAX + 1] = "";
    bool ok = is_allowed(server, client, request, text);
    if (server->handlers.on_asked) {
        const rs_api_asked asked = {.what = request_name(request),
                                    .process = client->process,
                                    .pid = client->pid,
                                    .who = &client->who,
                                    .app = request->type == RS_API_REGISTER ? request->app : client->app,
                                    .has_object = right_to_app(request->type) < RS_RIGHTS,
                                    .data_id = request->data_id,
                                    .group = request->type == RS_API_JOIN ? request->group : NULL,
                                    .servers = request->receivers,
                                    .server_count = request->receiver_count,
                                    .refusal = ok ? NULL : text};
        server->handlers.on_asked(server->handlers.context, &asked);
    }
    if (!ok)
        rs_api_reply_error(server, call, ROSTRUM_ERR_DENIED, "%s", text);
    return ok;
}

bool rs_api_may_see(const rs_api_server *server, const rs_api_client *client, const uint8_t app[16]) {
    if (!client)
        return false;
    if (server->policy)
        return rs_policy_allows(server->policy, &client->who, RS_RIGHT_READ, app);
    return client->uid == 0 || client->uid == (unsigned int)geteuid() ||
           (client->registered && memcmp(client->app, app, sizeof client->app) == 0);
}

bool rs_api_may_join(rs_api_server *server, const rs_policy_who *who, const char *process,
                     const rs_api_request *request, char text[ROSTRUM_TEXT_MAX + 1]) {
    static const uint8_t none[16];
    const rs_right right = request->flags & RS_API_JOIN_SUBSCRIBE ? RS_RIGHT_SUBSCRIBE : RS_RIGHT_PUBLISH;
    const rs_api_client client = {.who = *who, .uid = who->uid};
    bool ok = !server->policy || rs_policy_allows(server->policy, who, right, request->group) ||
              refuse(text, &client, right, request->group);
    if (server->handlers.on_asked) {
        const rs_api_asked asked = {.what = request_name(request),
                                    .process = process,
                                    .pid = (int)who->pid,
                                    .who = who,
                                    .app = none,
                                    .group = request->group,
                                    .refusal = ok ? NULL : text};
        server->handlers.on_asked(server->handlers.context, &asked);
    }
    return ok;
}

bool rs_api_may_publish(const rs_api_server *server, const rs_policy_who *who, const char *group) {
    return rs_policy_allows(server->policy, who, RS_RIGHT_PUBLISH, group);
}

bool rs_api_may_subscribe(const rs_api_server *server, const rs_policy_who *who, const char *group) {
    return rs_policy_allows(server->policy, who, RS_RIGHT_SUBSCRIBE, group);
}

void rs_api_policy_set(rs_api_server *server, const rs_policy *policy) {
    bool again = server->policy != NULL;
    server->policy = policy;
    if (!again)
        return;
    uint32_t cursor = 0;
    for (const rs_object *object; (object = rs_store_next(server->store, &cursor));)
        (void)rs_store_file_revoke(object->fd);
    for (rs_api_wait *wait = server->waits, *next; wait; wait = next) {
        next = wait->next;
        const rs_api_client *client = rs_api_client_find(server, wait->call.client);
        bool reads = wait->kind == RS_WAIT_READ || wait->kind == RS_WAIT_EVENTS;
        if (!client || !reads || rs_policy_allows(policy, &client->who, RS_RIGHT_READ, wait->id.app))
            continue;
        rs_api_reply_error(server, &wait->call, ROSTRUM_ERR_DENIED, "the agent's policy changed: uid %u may not read",
                           client->uid);
        rs_api_wait_end(server, wait, false);
    }
}
