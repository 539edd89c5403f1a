// Files of comma-separated values with a header line.
#ifndef HALYARD_EXPERIMENTS_CSV_H
#define HALYARD_EXPERIMENTS_CSV_H

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace experiments {

class Csv {
public:
    Csv(const std::filesystem::path &file, std::initializer_list<std::string_view> columns)
        : path(file), out(file), column_count(columns.size()) {
        for (const std::string_view column : columns) {
            field(column);
        }
        end_line();
    }

    /** One value for each column. Numbers are written with the digits that give the same number when read. */
    template<class... Values>
    void line(const Values &...values) {
        if (sizeof...(values) != column_count) {
            throw std::logic_error(path.string() + ": a line has another number of values than there are columns");
        }
        (field(values), ...);
        end_line();
    }

    /** Throws if not all could be written. */
    void close() {
        out.close();
        if (!out) {
            throw std::runtime_error("cannot write " + path.string());
        }
    }

private:
    template<class Value>
    void field(const Value &value) {
        out << (at_start ? "" : ",");
        at_start = false;
        if constexpr (std::is_arithmetic_v<Value>) {
            out.precision(std::numeric_limits<Value>::max_digits10);
            out << value;
        } else {
            quoted(value);
        }
    }

    void quoted(std::string_view text) {
        if (text.find_first_of(",\"\n") == std::string_view::npos) {
            out << text;
            return;
        }
        out << '"';
        for (const char c : text) {
            out << (c == '"' ? "\"\"" : std::string(1, c));
        }
        out << '"';
    }

    void end_line() {
        out << '\n';
        at_start = true;
    }

    std::filesystem::path path;
    std::ofstream out;
    std::size_t column_count;
    bool at_start = true;
};

}  // namespace experiments

#endif
