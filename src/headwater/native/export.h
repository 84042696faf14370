/* What a function needs to be found by its name in the extension. */
#ifndef HEADWATER_EXPORT_H
#define HEADWATER_EXPORT_H

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#endif
