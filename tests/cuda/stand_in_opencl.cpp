#define CL_TARGET_OPENCL_VERSION 200
#include "stand_in_opencl.h"

#include <CL/cl.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

namespace halyard::tests::opencl {

struct Kernel {
    cl_kernel handle = nullptr;
    std::vector<std::size_t> sizes;  // of parameters; 0: a pointer
    bool has_local = false;
};

namespace {

[[noreturn]] void stop(const std::string &message) {
    std::fprintf(stderr, "OpenCL: %s\n", message.c_str());
    std::abort();
}

struct OpenCl {
    cl_device_id device = nullptr;
    cl_context context = nullptr;
    cl_command_queue queue = nullptr;

    OpenCl() {
        cl_platform_id platform;
        if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS ||
            clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, nullptr) != CL_SUCCESS) {
            stop("there is no OpenCL for processors; Debian has it in pocl-opencl-icd");
        }
        context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
        queue = clCreateCommandQueueWithProperties(context, device, nullptr, nullptr);
    }
};

OpenCl &opencl() {
    static OpenCl instance;
    return instance;
}

std::string text_of(cl_program program) {
    std::size_t size = 0;
    clGetProgramBuildInfo(program, opencl().device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
    std::string log(size, '\0');
    clGetProgramBuildInfo(program, opencl().device, CL_PROGRAM_BUILD_LOG, size, &log[0], nullptr);
    return log;
}

std::size_t size_of_type(const std::string &type) {
    static const std::map<std::string, std::size_t> sizes = {{"int", 4},  {"uint", 4},  {"float", 4},
                                                             {"char", 1}, {"uchar", 1}, {"long", 8}};
    const auto found = sizes.find(type);
    if (found == sizes.end()) {
        stop("a parameter has the type " + type);
    }
    return found->second;
}

}  // namespace

std::shared_ptr<const Kernel> compile(const std::string &path) {
    std::ifstream file(path);
    std::stringstream stream;
    stream << file.rdbuf();
    std::string source = stream.str();
    const std::string contract = "#pragma OPENCL FP_CONTRACT ON";
    const std::size_t at = source.find(contract);
    if (at == std::string::npos) {
        stop("there is no OpenCL source " + path);
    }
    // Sums of products are fused where the generator says so, and nowhere else.
    source.replace(at, contract.size(), "#pragma OPENCL FP_CONTRACT OFF");
    const char *text = source.c_str();
    const cl_program program = clCreateProgramWithSource(opencl().context, 1, &text, nullptr, nullptr);
    // Compiling takes most of the tests' time: without optimization it is a fifth.
    const char *const options =
        "-cl-std=CL1.2 -cl-kernel-arg-info -cl-fp32-correctly-rounded-divide-sqrt -cl-opt-disable";
    if (clBuildProgram(program, 1, &opencl().device, options, nullptr, nullptr) != CL_SUCCESS) {
        stop(path + " does not compile:\n" + text_of(program));
    }
    const std::string head = "__kernel void _kernel_";
    const std::size_t begin = source.find(head) + head.size() - 8, end = source.find('(', begin);
    auto made = std::make_shared<Kernel>();
    cl_int error;
    made->handle = clCreateKernel(program, source.substr(begin, end - begin).c_str(), &error);
    if (error != CL_SUCCESS) {
        stop(path + " has no kernel");
    }
    cl_uint count = 0;
    clGetKernelInfo(made->handle, CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
    for (cl_uint i = 0; i < count; i++) {
        cl_kernel_arg_address_qualifier space;
        char type[64] = "";
        clGetKernelArgInfo(made->handle, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, nullptr);
        clGetKernelArgInfo(made->handle, i, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, nullptr);
        if (space == CL_KERNEL_ARG_ADDRESS_LOCAL) {
            made->has_local = true;
        } else {
            made->sizes.push_back(space == CL_KERNEL_ARG_ADDRESS_PRIVATE ? size_of_type(type) : 0);
        }
    }
    return made;
}

bool run(const Kernel &kernel, const unsigned (&grid)[3], const unsigned (&block)[3], std::size_t shared_bytes,
         void *const *parameters) {
    cl_uint i = 0;
    for (; i < kernel.sizes.size(); i++) {
        const cl_int set = kernel.sizes[i] == 0
                               ? clSetKernelArgSVMPointer(kernel.handle, i, *static_cast<void **>(parameters[i]))
                               : clSetKernelArg(kernel.handle, i, kernel.sizes[i], parameters[i]);
        if (set != CL_SUCCESS) {
            return false;
        }
    }
    if (kernel.has_local) {
        clSetKernelArg(kernel.handle, i, shared_bytes > 0 ? shared_bytes : 16, nullptr);
    }
    std::size_t all[3], local[3];
    for (int axis = 0; axis < 3; axis++) {
        local[axis] = block[axis];
        all[axis] = std::size_t{grid[axis]} * block[axis];
    }
    const cl_int launched =
        clEnqueueNDRangeKernel(opencl().queue, kernel.handle, 3, nullptr, all, local, 0, nullptr, nullptr);
    return launched == CL_SUCCESS && clFinish(opencl().queue) == CL_SUCCESS;
}

}  // namespace halyard::tests::opencl
