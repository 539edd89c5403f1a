// What the kernel of rows of a table has in common with its caller.
#ifndef HALYARD_RUNTIME_LAYOUT_EMBED_ROWS_H
#define HALYARD_RUNTIME_LAYOUT_EMBED_ROWS_H

namespace halyard {

/** Rows of one launch. */
constexpr int embedded_rows = 16;

}  // namespace halyard

#endif
