/* Channels of api_testd: what a program publishes in a group comes back to it, from "h2", and is complete. */
#ifndef API_CHANNELS_H
#define API_CHANNELS_H

#include "daemon/api/server.h"

void fake_channels_open(rs_api_server *api, const rs_api_join *join);
/* Answers what there is. True: a program has channels. */
bool fake_channels_tick(void);
void fake_channels_stop(void);

#endif
