/* Memory for what lies between the steps of a job. Much of it, given back to the system and asked for again, costs page
 * faults: a tenth of the time in which a prompt is read. So within a room a thread gets again what it has given back. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* At least so many bytes, on lines of the cache, and how many there are. Ends the process where there is no memory, as MLX does. */
void* mk_take(size_t* bytes);
void mk_give(void* block, size_t bytes);
/* Rooms may lie in each other; behind the outermost one nothing is kept. */
void mk_enter_room(void);
void mk_leave_room(void);
#ifdef __cplusplus
}
#endif
